"""The thorough way of `auto`, from a rough base: log Z where it is known."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.inference import flexible
from nestedvi.inference.answer import Answer, Request
from nestedvi.inference.flexible import (
    Start,
    _beyond_draws,
    _disagreement,
    answer_by_rounds,
)
from nestedvi.inference.quick import QuickBase
from nestedvi.progress import Stages
from tests.helpers.three_modes import LOG_Z, three_modes


@pytest.mark.slow
def test_rounds_from_a_wide_base_find_log_Z():
    target = Pullback(nvi.Density(three_modes), AffineMap(jnp.zeros(2), jnp.ones(2)))
    start = Start(target, nvi.DiagonalNormal(jnp.zeros(2), 8.0), None, QuickBase(None, False, 0, 0))
    request = Request(target.density, 2, num_particles=1000)
    with Stages(False) as stages:
        answer = answer_by_rounds(jax.random.key(0), request, start, stages)
    assert abs(answer.log_Z - LOG_Z) < 5 * answer.log_Z_stderr < 0.1
    assert answer.sampler.num_levels == 25 and "frozen run" in stages.timings


def test_runs_that_disagree_are_named():
    assert _disagreement(1.0, 1.05, 0.001) == ()
    (sentence,) = _disagreement(1.0, 2.0, 0.01)
    assert "differ by 1.00 in log Z" in sentence and np.isfinite(len(sentence))


def test_mass_that_moves_reach_and_draws_do_not():
    """Of three particles one, with half of the weight, is where the base has less of its due than
    at any draw; the first temperature is one half.
    """
    run = SimpleNamespace(
        drawn_log_w=np.array([0.0, 1.0, -3.0]),
        betas=np.array([0.5, 1.0]),
        log_ratios=np.array([[9.0, 9.0, 9.0], [1.9, 2.1, 0.0]]),
        log_w=np.log([[0.25, 0.5, 0.25]]),
    )
    assert _beyond_draws(run) == pytest.approx(0.5)
    assert _beyond_draws(SimpleNamespace(**{**vars(run), "drawn_log_w": np.array([1.1])})) == 0


def test_a_bulk_beyond_all_draws_is_counted_where_it_was_reached():
    """All three particles end beyond the draws. At the first temperature one of them is beyond
    these, and at the last one, with a quarter of the weight, beyond what the others had reached.
    """
    run = SimpleNamespace(
        drawn_log_w=np.array([0.0, 1.0, -3.0]),
        betas=np.array([0.5, 1.0]),
        log_ratios=np.array([[0.0, 2.0, -6.0], [1.0, 5.0, 1.5], [4.0, 4.5, 6.0]]),
        log_w=np.log([[0.25, 0.5, 0.25]]),
    )
    assert _beyond_draws(run) == pytest.approx(1 / 3 + 0.25)


@pytest.mark.parametrize(
    ("taken", "given", "expected"), [(2, None, 25), (140, None, 140), (140, 30, 30)]
)
def test_a_frozen_run_has_no_fewer_temperatures_than_the_adaptive_one(
    monkeypatch, taken, given, expected
):
    """Unless the user says how many."""
    asked = []

    class Asked(Exception):
        pass

    def freeze(run, num_levels, **_):
        asked.append(num_levels)
        raise Asked

    monkeypatch.setattr(flexible, "freeze", freeze)
    run = SimpleNamespace(num_levels=taken)
    monkeypatch.setattr(flexible, "_learn", lambda *_: flexible._Learned(None, run, None))
    target = nvi.Density(three_modes)
    with Stages(False) as stages, pytest.raises(Asked):
        request = Request(target, 2, num_levels=given)
        answer_by_rounds(jax.random.key(0), request, SimpleNamespace(target=target), stages)
    assert asked == [expected]


@pytest.mark.parametrize(("largest", "names"), [(0.0, 1), (30.0, 2)])
def test_weights_of_one_draw_are_not_an_answer(monkeypatch, largest, names):
    """From a base that keeps most of its draws fresh ones are weighted at once. Where one of them
    has nearly all of the weight particles go in steps instead, and both runs are in the cost.
    """
    target = nvi.Density(three_modes)
    adaptive = SimpleNamespace(num_levels=1, log_Z_hat=LOG_Z)
    spent = flexible._Spent(3.0, 5.0)
    learned = flexible._Learned(nvi.DiagonalNormal(jnp.zeros(2), 3.0), adaptive, spent)
    monkeypatch.setattr(flexible, "_learn", lambda *_: learned)
    log_w = np.random.default_rng(0).normal(size=(2, 16_000))
    log_w[:, :40] += np.linspace(0, largest, 40)
    runs, seen = [], []

    def freeze(run, num_levels, *, in_steps=False):
        seen.append(in_steps)
        return SimpleNamespace(betas=np.array([0.5 if in_steps else 1.0, 1.0]))

    def follow(key, base, target, tuned, **options):
        runs.append(key)
        return SimpleNamespace(
            drawn_log_w=log_w[len(runs) - 1], gradients=264, values=20.0, log_Z_hat=LOG_Z
        )

    given = Answer(np.zeros((2, 2)), np.zeros(2), LOG_Z, 0.01)
    monkeypatch.setattr(flexible, "freeze", freeze)
    monkeypatch.setattr(flexible, "follow", follow)
    monkeypatch.setattr(flexible, "answer_from_followed", lambda *_: given)
    monkeypatch.setattr(flexible, "as_sampler", lambda *_: None)
    for name in ("unfinished", "missed_modes", "first_order"):
        monkeypatch.setattr(flexible, name, lambda *_: ())
    monkeypatch.setattr(flexible, "_beyond_draws", lambda run: 0.0)
    start = SimpleNamespace(target=target, quick=SimpleNamespace(log_mass=LOG_Z))
    with Stages(False) as stages:
        request = Request(target, 2, num_particles=1000)
        answer = answer_by_rounds(jax.random.key(0), request, start, stages)
        assert list(stages.timings)[:names] == ["frozen run", "frozen run in steps"][:names]
    assert seen == [False, True][:names] and len(runs) == names
    assert answer.cost == (3.0, names * 264, 5.0 + names * 20.0)
    keys = [jax.random.key_data(k).tolist() for k in runs]
    assert len({str(k) for k in keys}) == names
