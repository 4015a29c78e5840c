"""The HMM experiment end to end in a very small version: files, numbers that must hold, reading
back, and refusals.
"""

import json
from dataclasses import replace

import jax
import matplotlib.image
import numpy as np
import pytest

from nestedvi.paper.hmm import reference, rows, series, training
from nestedvi.paper.hmm.config import ROWS, HMMConfig
from nestedvi.paper.hmm.program import build_program
from nestedvi.paper.hmm.run import reproduce_hmm
from nestedvi.paper.hmm.training import from_arrays, to_arrays

pytestmark = pytest.mark.slow
CONFIG = HMMConfig(
    rows=("recursion-em", "recursion-em-refresh"),
    num_steps=10,
    refresh_every=5,
    train_instances=50,
    test_instances=12,
    references=6,
    particles=50,
    iterations=20,
    train_particles=8,
    batch_size=4,
    width=4,
    reference_particles=200,
    reference_moves=5,
    reference_runs=2,
    # Each round compiles a tempered SMC of its own, which is most of the time; one is exact enough
    # for the margins below.
    reference_rounds=1,
    shown=(0,),
    at_once=4,
    measure_cost=False,
    series=1,
    series_steps=6,
    series_iterations=5,
    series_particles=20,
    series_batches=10,
)
FIELDS = {
    "heuristic",
    "optimisation",
    "log_Z_hat_mean",
    "gap_to_reference_mean",
    "gap_stderr",
    "ess_percent",
    "distinct_eta_mean",
    "instances",
    "particles",
    "train_seconds",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hmm")
    return folder, reproduce_hmm(CONFIG, folder, jobs=2)


def results(finished):
    return dict(zip(CONFIG.rows, finished[1]["rows"], strict=True))


def test_every_file_is_there(finished):
    """Results with the fields of the table, the table, pictures that are not blank, and no
    checkpoint left.
    """
    folder, _ = finished
    pictures = {"instances.png", "gap_and_ess.png", "linear_gaussian.png"}
    assert {p.name for p in folder.iterdir()} == pictures | {"results.json", "table.md", "cells"}
    for name in pictures:
        assert np.ptp(matplotlib.image.imread(folder / name)[..., :3]) > 0.5
    content = json.loads((folder / "results.json").read_text())
    assert [row["name"] for row in content["rows"]] == list(CONFIG.rows)
    assert all(row.keys() >= FIELDS for row in content["rows"])
    assert all(row[field] is not None for row in content["rows"] for field in FIELDS)
    assert {
        "command",
        "versions",
        "device",
        "seed",
        "reference",
        "linear_gaussian",
        "config",
    } <= content.keys()
    assert not [p for p in (folder / "cells").iterdir() if p.is_dir()]


def test_the_table_has_a_line_a_row(finished):
    """Every row's label with its numbers, as results.json has them."""
    text = (finished[0] / "table.md").read_text()
    assert "12 test instances, 50 particles" in text and "learned proposal and heuristic" in text
    for name, row in results(finished).items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {ROWS[name].label} |")]
        assert (
            f"| {row['log_Z_hat_mean']:.2f} |" in line
            and f"{row['gap_to_reference_mean']:.2f} ± " in line
        )


def test_the_recursion_is_near_the_truth(finished):
    """With proposals at the modes it is within a few nats, refreshed or not."""
    found = results(finished)
    for name in ("recursion-em", "recursion-em-refresh"):
        assert abs(found[name]["gap_to_reference_mean"]) < 3
    assert all(0 < row["ess_percent"] <= 100 and row["non_finite"] == 0 for row in found.values())


def test_gaps_are_means_over_the_instances_with_a_reference(finished):
    """Gap, its standard error and the mean log Ẑ from the arrays that the cells keep."""
    cells = finished[0] / "cells"
    exact, found = (dict(np.load(cells / f"{name}.npz")) for name in ("reference", "recursion-em"))
    assert exact["log_Z"].shape == (6,) and found["log_Z_hat"].shape == (12,)
    gaps, row = exact["log_Z"] - found["log_Z_hat"][:6], results(finished)["recursion-em"]
    assert row["log_Z_hat_mean"] == pytest.approx(found["log_Z_hat"].mean())
    assert row["gap_to_reference_mean"] == pytest.approx(gaps.mean())
    assert row["gap_to_reference_median"] == pytest.approx(np.median(gaps))
    expected = np.sqrt(gaps.var(ddof=1) / 6 + np.mean(exact["stderr"] ** 2) / 6)
    assert row["gap_stderr"] == pytest.approx(expected)


def test_a_refreshed_row_runs_what_the_other_trained(finished):
    """Same networks, so the same time of training and the same learned transitions."""
    found, result = results(finished), finished[1]
    assert found["recursion-em-refresh"]["train_seconds"] == found["recursion-em"]["train_seconds"]
    plain, refreshed = (
        np.asarray(result["learned_transitions"][n])
        for n in ("recursion-em", "recursion-em-refresh")
    )
    np.testing.assert_array_equal(plain, refreshed)
    np.testing.assert_allclose(plain.sum(axis=1), 1, rtol=1e-5)


def test_what_is_there_is_not_computed_again(finished, monkeypatch):
    """A second call reads every cell back and writes the same numbers."""

    def refuse(*arguments, **options):
        raise AssertionError("computed again")

    monkeypatch.setattr(training, "fit_amortised", refuse)
    monkeypatch.setattr(rows, "evaluate_instances", refuse)
    monkeypatch.setattr(series, "fit", refuse)
    monkeypatch.setattr(reference, "_tempered_runs", refuse)
    folder, result = finished
    again = reproduce_hmm(CONFIG, folder)
    words = {"heuristic", "optimisation"}
    for before, after in zip(result["rows"], again["rows"], strict=True):
        assert {n: after[n] for n in words} == {n: before[n] for n in words}
        assert [after[n] for n in sorted(FIELDS - words)] == pytest.approx(
            [before[n] for n in sorted(FIELDS - words)], rel=1e-6
        )
    with pytest.raises(AssertionError, match="computed again"):
        reproduce_hmm(replace(CONFIG, rows=("recursion-em",), particles=51), folder)


def test_networks_are_kept_as_cells(finished):
    """Trained networks are a json and an npz file like every other result, and are read back bit
    for bit; the recorded configuration names the order of execution as it always did.
    """
    cells = finished[0] / "cells"
    assert {p.suffix for p in cells.iterdir()} == {".json", ".npz"}
    kept = dict(np.load(cells / "recursion-em-networks.npz"))
    program = build_program(jax.random.key(0), ROWS["recursion-em"], width=4, em_steps=12)
    again = to_arrays(from_arrays(program, kept))
    assert kept["training_log_Z_hat"].shape == (CONFIG.iterations,)
    assert set(kept) == {*again, "training_log_Z_hat"}
    for name, array in again.items():
        np.testing.assert_array_equal(array, kept[name])
    cell = json.loads((cells / "recursion-em.json").read_text())["cell"]
    assert cell["training"]["schedule"] == finished[1]["config"]["schedule"] == CONFIG.order
