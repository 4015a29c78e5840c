"""The annealing experiment end to end in its quick version, and the statistics that must hold."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from nestedvi.paper.annealing.config import AnnealingConfig, quick_config
from nestedvi.paper.annealing.run import reproduce_annealing

pytestmark = pytest.mark.slow

METHODS = ("avo", "nvir-star")


@pytest.fixture(scope="module")
def config():
    quick = quick_config(AnnealingConfig(methods=METHODS))
    # One of each thing beyond the table: every further one is another compilation.
    return replace(
        quick,
        targets=quick.targets[:1],
        large_levels=(4,),
        budgets=(("nvir-star", 8, 36, 50, 1e-2),),
    )


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    # The only tests whose programs run for long: here optimising them pays.
    jax.config.update("jax_disable_most_optimizations", False)
    folder = tmp_path_factory.mktemp("annealing")
    yield folder, reproduce_annealing(config, folder)
    jax.config.update("jax_disable_most_optimizations", True)


def row(result, method):
    return next(r for r in result["rows"] if r["method"] == method)


def test_every_file_is_there(finished):
    folder, _ = finished
    names = {
        "results.json",
        "table.md",
        "samples.png",
        "schedules.png",
        "training_ess.png",
        "targets.png",
        "large_k.png",
    }
    assert {p.name for p in folder.iterdir()} == names | {"cells"}
    content = json.loads((folder / "results.json").read_text())
    wanted = {
        "method",
        "K",
        "particles",
        "restarts",
        "iterations",
        "log_Z_hat_mean",
        "log_Z_hat_std",
        "ess_percent",
    }
    assert wanted | {"ess_percent_std", "train_seconds"} <= content["rows"][0].keys()
    assert {"command", "versions", "device", "seed"} <= content.keys()
    assert content["config"]["schedule"] == "sequential"
    assert not [p for p in (folder / "cells").iterdir() if p.is_dir()], (
        "a finished cell leaves no checkpoint behind"
    )


def test_the_table_shows_the_papers_values(finished):
    text = (finished[0] / "table.md").read_text()
    assert "NVIR*" in text and "(2.08 / 97)" in text and "AVO" in text


def test_resampling_raises_the_effective_sample_size(finished):
    """ESS of AVO and NVIR*: the paper's ordering, by more than the spread between restarts."""
    avo, star = (row(finished[1], m) for m in METHODS)
    spread = np.hypot(avo["ess_percent_std"], star["ess_percent_std"])
    assert star["ess_percent"] - avo["ess_percent"] > 3 * spread


def test_estimates_are_near_the_truth(finished):
    """A mean of log Ẑ is below log Z on average; after a short training all of these are within a
    few spreads and 0.3.
    """
    for method in METHODS:
        result = row(finished[1], method)
        assert abs(result["log_Z_hat_mean"] - np.log(8)) < 0.3 + 3 * result["log_Z_hat_std"]


def test_the_learned_schedule_is_monotone_and_evens_out_the_path(finished):
    folder, result = finished
    with np.load(folder / "cells" / "nvir-star-K8.npz") as arrays:
        betas = arrays["betas"]
    assert betas[:, 0] == pytest.approx(0) and betas[:, -1] == pytest.approx(1)
    assert (np.diff(betas, axis=1) > 0).all()
    kls = result["neighbour_kl"]
    flatness = {name: np.std(values) / np.mean(values) for name, values in kls.items()}
    assert flatness["NVIR*"] < 0.8 * flatness["linear"]
    assert (np.diff(kls["linear"]) < 0).all(), "for a linear schedule the KL falls with k"


def test_what_is_there_is_not_trained_again(finished, config):
    folder, result = finished
    before = {p: p.stat().st_mtime_ns for p in (folder / "cells").iterdir()}
    again = reproduce_annealing(config, folder)
    assert {p: p.stat().st_mtime_ns for p in (folder / "cells").iterdir()} == before
    assert again["rows"] == json.loads((folder / "results.json").read_text())["rows"]
    assert [r["log_Z_hat_mean"] for r in again["rows"]] == pytest.approx(
        [r["log_Z_hat_mean"] for r in result["rows"]]
    )
