"""A user's model from a file to files, with an answer that is made up."""

import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.inference.answer import Answer
from nestedvi.inference.own_model import OwnModelConfig, run_own_model
from nestedvi.inference.sample import ANSWERS


@pytest.fixture
def asked(monkeypatch):
    """What the way of answering was asked for."""
    requests = []
    monkeypatch.setitem(sys.modules, "arviz", None)

    def answer(key, request):
        requests.append(request)
        z = jnp.linspace(-1.0, 1.0, 40 * request.dim).reshape(40, request.dim)
        return Answer(z, jnp.zeros(40), 2.0, 0.01)

    monkeypatch.setitem(ANSWERS, "auto", answer)
    return requests


def test_a_log_density_takes_its_data_by_name(asked, tmp_path):
    """exp(−|z − loc|²/2) with loc from a file; options that were not given keep the defaults of
    `sample`.
    """
    (tmp_path / "bell.py").write_text(
        "import jax.numpy as jnp\n\ndef bell(z, loc):\n    return -0.5 * jnp.sum((z - loc) ** 2)\n"
    )
    np.savez(tmp_path / "data.npz", loc=np.array([3.0, -1.0]))
    config = OwnModelConfig(f"{tmp_path}/bell.py:bell", str(tmp_path / "data.npz"), 2, seed=7)
    done = run_own_model(config, tmp_path / "out")
    (request,) = asked
    assert float(request.density.log_gamma(jnp.array([3.0, 0.0]))) == -0.5
    assert request.num_particles == 2000 and request.num_levels is None
    assert done.content["seed"] == 7 and done.content["log_Z_true"] is None
    written = json.loads((tmp_path / "out" / "posterior.json").read_text())
    assert written["log_Z"] == pytest.approx(2.0, abs=1e-5) and written["model"] == "bell.py:bell"
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(done.written)


def test_a_built_in_target_knows_its_log_Z(asked, tmp_path):
    done = run_own_model(OwnModelConfig("ring", num_particles=50, num_levels=3), tmp_path)
    assert done.content["log_Z_true"] == pytest.approx(np.log(8))
    assert (asked[0].dim, asked[0].num_particles, asked[0].num_levels) == (2, 50, 3)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OwnModelConfig("rign"), "Did you mean 'ring'"),
        (OwnModelConfig("ring", dim=3), "has dim = 2; got --dim 3"),
        (OwnModelConfig("ring", data="nothing.csv"), "nothing.csv"),
        (OwnModelConfig("nowhere.py:model"), "There is no file nowhere.py"),
    ],
)
def test_what_cannot_be_read_fails_before_the_folder_is_made(config, message, asked, tmp_path):
    with pytest.raises((ValueError, nvi.errors.DataError), match=message):
        run_own_model(config, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not asked
