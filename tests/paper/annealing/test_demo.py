"""The demo, small: it trains, evaluates, writes two files and cleans up."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.paper.annealing.demo import DemoConfig, mode_shares, run_demo

pytestmark = pytest.mark.slow

SMALL = DemoConfig(
    num_levels=3, num_particles=4, num_steps=20, eval_particles=20, eval_batches=3, seed=4
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, run_demo(SMALL, folder)


def test_it_leaves_two_files(demo):
    folder, _ = demo
    assert sorted(p.name for p in folder.iterdir()) == ["demo.json", "demo.png"]
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_its_json_says_how_good_and_how_made(demo):
    folder, returned = demo
    content = json.loads((folder / "demo.json").read_text())
    assert content.keys() == returned.keys()
    assert content["log_Z"] == returned["log_Z"] and content["log_Z_stderr"] > 0
    np.testing.assert_allclose(content["log_Z_true"], np.log(8))
    assert 0 < content["ess_percent"] <= 100 and len(content["level_ess"]) == 3
    assert len(content["mode_shares"]) == 8 and abs(sum(content["mode_shares"]) - 1) < 1e-5
    assert (
        content["schedule"][0] == 0
        and content["schedule"][-1] == 1
        and len(content["schedule"]) == 3
    )
    assert (
        content["config"]["num_steps"] == 20
        and content["seed"] == 4
        and content["skipped_gradients"] == 0
    )
    assert {"command", "versions", "device", "method", "train_seconds"} <= content.keys()


def test_mode_shares_are_weights_of_the_nearest_mode():
    """Particles on the modes, mode m with weight m."""
    z = nvi.targets.ring_modes() + 0.3
    np.testing.assert_allclose(
        mode_shares(z, jnp.log(jnp.arange(1.0, 9.0))), np.arange(1, 9) / 36, rtol=1e-5
    )


def test_a_folder_that_cannot_be_written_is_found_out_first(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="Cannot write to the output folder"):
        run_demo(SMALL, tmp_path / "file")
