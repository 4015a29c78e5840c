"""Rows of the table: which training each of them runs, and what is made of its evaluation."""

from dataclasses import replace

import numpy as np
import pytest

from nestedvi.evaluation.instances import InstanceEvaluation
from nestedvi.paper.hmm import rows
from nestedvi.paper.hmm.cells import row_cells
from nestedvi.paper.hmm.config import ROWS, HMMConfig
from nestedvi.paper.hmm.program import build_program
from nestedvi.paper.hmm.refresh import ClusterRefresh
from nestedvi.paper.hmm.rows import run_row

CONFIG = HMMConfig(
    num_steps=4, refresh_every=2, test_instances=3, references=1, width=2, shown=(1,)
)


@pytest.mark.parametrize(
    ("name", "optimisation"),
    [("gmm", "proposals"), ("neural-full", "full"), ("recursion-refresh", "partial")],
)
def test_a_row_is_made_of_its_evaluation(name, optimisation, monkeypatch, tmp_path):
    """ESS in per cent of the particles, instances without a finite log Ẑ counted, η moved where
    the row says so, and learned transitions where it has some.
    """
    asked = {}

    def evaluate(key, program, test, **options):
        asked.update(options)
        return InstanceEvaluation(
            log_Z_hat=np.array([1.0, -np.inf, 3.0]),
            ess=np.array([10.0, 20.0, 60.0]),
            distinct=np.array([1, 2, 6]),
            num_particles=100,
        )

    def trained(key_build, key_fit, cell, folder, reporter):
        program = build_program(key_build, cell.row, width=cell.width, em_steps=1)
        return program, {"train_seconds": 5.0}

    # Without Baum-Welch, whose fits are compiled.
    plain = replace(ROWS["recursion-em-refresh"], encoder="statistics", trained_as=None)
    monkeypatch.setitem(ROWS, "recursion-refresh", plain)
    (cell,) = row_cells(replace(CONFIG, rows=(name,), particles=100))
    monkeypatch.setattr(rows, "trained_program", trained)
    monkeypatch.setattr(rows, "simulate", lambda *a: (None, None, np.zeros((3, 4), np.float32)))
    monkeypatch.setattr(rows, "evaluate_instances", evaluate)
    monkeypatch.setattr(rows, "_draws", lambda key, program, xs, num: {"drawn": xs})
    row, arrays = run_row(cell, 2, tmp_path, None)
    assert row["ess_percent"] == 30 and row["distinct_eta_mean"] == 3 and row["non_finite"] == 1
    assert row["optimisation"] == optimisation and row["train_seconds"] == 5.0
    assert isinstance(asked["refresh"], ClusterRefresh) == ROWS[name].refresh
    assert asked["at_once"] == 2 and asked["every"] == 2 and asked["num_particles"] == 100
    assert arrays["drawn"].shape == (1, 4), "one series is shown"
    if ROWS[name].heuristic == "recursion":
        np.testing.assert_allclose(arrays["transitions"], np.full((4, 4), 0.25), rtol=1e-6)
    assert ("transitions" in arrays) == (ROWS[name].heuristic == "recursion")
