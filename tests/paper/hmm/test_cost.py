"""The cost of a step, with a training that takes a known time."""

from types import SimpleNamespace

import numpy as np
import pytest

from nestedvi.paper.hmm import cost
from nestedvi.paper.hmm.cells import CostCell, cell_of
from nestedvi.paper.hmm.config import HMMConfig
from nestedvi.paper.hmm.cost import measure_cost


def test_the_ratio_is_that_of_twice_as_many_observations(monkeypatch):
    """A step of K² seconds: four times as long for 2K."""
    seen = []

    def fit(key, program, xs, objective, **options):
        seen.append((options["num_particles"], options["batch_size"], options["order"]))
        return SimpleNamespace(step_seconds=float(xs.shape[1] ** 2))

    monkeypatch.setattr(cost, "fit_amortised", fit)
    monkeypatch.setattr(cost, "simulate", lambda seed, part, *shape: (None, None, np.zeros(shape)))
    cell = cell_of(CostCell, HMMConfig(width=2), name="cost", num_steps=5)
    row, arrays = measure_cost(cell)
    assert row == {"K": 5, "step_seconds": 25, "step_seconds_2K": 100, "ratio": pytest.approx(4)}
    assert seen == [(cell.train_particles, cell.batch_size, cell.order)] * 2 and arrays == {}
