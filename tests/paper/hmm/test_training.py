"""The networks of a row: kept bit for bit, and trained once."""

from types import SimpleNamespace

import equinox as eqx
import jax
import numpy as np
import pytest

from nestedvi.paper.hmm import training
from nestedvi.paper.hmm.cells import TrainingCell, cell_of
from nestedvi.paper.hmm.config import ROWS, HMMConfig
from nestedvi.paper.hmm.program import build_program
from nestedvi.paper.hmm.training import (
    from_arrays,
    row_objective,
    to_arrays,
    trained_program,
)

ROW = ROWS["neural-full"]


def program(seed):
    return build_program(jax.random.key(seed), ROW, width=3, em_steps=2)


def test_arrays_make_the_program_again():
    """A program of other weights takes on the first one's, to the last bit."""
    first, second = program(1), program(2)
    kept = to_arrays(first)
    assert any((kept[name] != x).any() for name, x in to_arrays(second).items())
    again = from_arrays(second, kept)
    assert jax.tree.structure(again) == jax.tree.structure(first)
    for name, array in to_arrays(again).items():
        np.testing.assert_array_equal(array, kept[name])


@pytest.mark.parametrize("name", ["neural", "neural-full"])
def test_a_row_says_how_its_objective_is_optimised(name):
    objective = row_objective(ROWS[name])
    assert objective.optimise == ROWS[name].optimisation
    assert objective.learn == {"initial", "forward", "path"}


def test_networks_are_trained_once(monkeypatch, tmp_path):
    """A second call reads what the first one trained; another configuration trains again."""
    calls = []

    def fit(key, program, data, objective, **options):
        calls.append((options["num_steps"], data.xs.shape))
        moved = jax.tree.map(lambda x: x + 1 if eqx.is_inexact_array(x) else x, program)
        record = SimpleNamespace(log_Z_hat=np.zeros(2))
        return SimpleNamespace(
            program=moved, record=record, dropped=3, seconds=1.5, step_seconds=0.1
        )

    def simulated(seed, part, *shape):
        return None, None, np.zeros(shape, np.float32)

    monkeypatch.setattr(training, "fit_amortised", fit)
    monkeypatch.setattr(training, "simulate", simulated)
    config = HMMConfig(num_steps=4, refresh_every=2, train_instances=5, width=3, iterations=2)
    keys = jax.random.split(jax.random.key(0))

    def trained(**changes):
        cell = cell_of(TrainingCell, config, name="neural-full", row=ROW, **changes)
        return trained_program(keys[0], keys[1], cell, tmp_path, None)

    (first, report), (second, again) = trained(), trained()
    assert calls == [(2, (5, 4))] and report == again
    assert report == {"dropped_in_training": 3, "train_seconds": 1.5, "step_seconds": 0.1}
    start = to_arrays(build_program(keys[0], ROW, width=3, em_steps=config.em_steps))
    for name, array in to_arrays(first).items():
        np.testing.assert_array_equal(array, start[name] + 1)
        np.testing.assert_array_equal(array, to_arrays(second)[name])
    trained(batch_size=2)
    assert len(calls) == 2
