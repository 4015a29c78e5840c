"""`nestedvi reproduce bgmm-vae`: what reaches the experiment, and failures in one sentence."""

from functools import partial

import pytest

from nestedvi.paper.bgmm_vae import run as bgmm_vae
from nestedvi.paper.bgmm_vae.config import BgmmVaeConfig, quick_config
from tests.helpers.command_line import one_sentence


@pytest.fixture
def command(command):
    """Runs `nestedvi reproduce bgmm-vae` in this process: exit code, standard output, standard
    error.
    """
    return partial(command, "reproduce", "bgmm-vae")


def test_options_reach_the_experiment(command, monkeypatch, tmp_path):
    seen = {}

    def fake(config, out, **options):
        seen.update(options, config=config)
        (tmp_path / "table.md").write_text("the table\n")

    monkeypatch.setattr(bgmm_vae, "reproduce_bgmm_vae", fake)
    options = (
        "--dataset mnist --methods nvi,rws --seeds 3 --iterations 70 --set rate_rest=5e-3 --set"
        " decay=true --validation"
    )
    code, out, _ = command(
        *options.split(), "--half", "--data-dir", "here", "--out", tmp_path, "--seed", 4
    )
    config = seen["config"]
    assert code == 0 and "the table" in out and seen["data_dir"] == "here"
    assert (config.datasets, config.methods, config.seeds, config.iterations) == (
        ("mnist",),
        ("nvi", "rws"),
        3,
        70,
    )
    assert (config.variants, config.split, config.seed) == (
        ("rate_rest=5e-3", "decay=true"),
        "validation",
        4,
    )
    assert config.half
    command("--quick", "--out", tmp_path)
    assert seen["config"] == quick_config(BgmmVaeConfig())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "minst"], "Did you mean 'mnist'?"),
        (["--methods", "rsw"], "Unknown method 'rsw'"),
        (["--set", "rate=1"], "Unknown setting 'rate'"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--data-dir", "/nowhere"], "holds no files of MNIST"),
    ],
)
def test_failures_are_one_sentence(command, tmp_path, arguments, message):
    code, _, error = command(*arguments, "--out", tmp_path)
    assert code == 1 and message in one_sentence(error)
