"""The thorough way of `auto`, from a rough base: log Z where it is known."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.mixtures import StudentMixture
from nestedvi.fitting.importance import Trial
from nestedvi.inference import flexible
from nestedvi.inference.answer import Request
from nestedvi.inference.flexible import (
    Start,
    _beyond_draws,
    _disagreement,
    _plain_base,
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


def quick_at(mean, root):
    base = StudentMixture(jnp.asarray(mean)[None], jnp.asarray(root)[None], jnp.zeros(1))
    return QuickBase(Trial(base, 0.0, 0.01, 0.9, 0.5, 1000), False, 0, 0)


def test_a_plain_base_has_the_particles_moments():
    """Those of two runs together, in the precision that draws are made in."""
    rng, dim = np.random.default_rng(0), 3
    root = np.linalg.cholesky(np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]]))
    runs = [(rng.normal(size=(1, 4000, dim)) @ root.T + 1.0).astype(np.float32) for _ in "ab"]
    base = _plain_base(quick_at(np.zeros(dim), np.eye(dim)), runs)
    assert base.means.dtype == jnp.float32
    np.testing.assert_allclose(base.means[0], 1.0, atol=5 * 1.5 / np.sqrt(8000))
    np.testing.assert_allclose(base.roots[0] @ base.roots[0].T, root @ root.T, atol=0.15)


def test_a_plain_base_without_modes_is_one_gaussian():
    z = np.random.default_rng(1).normal(3.0, 2.0, size=(1, 500, 2)).astype(np.float32)
    base = _plain_base(QuickBase(None, False, 0, 0), [z])
    np.testing.assert_allclose(base.means[0], z[0].mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(np.diag(base.roots[0]), z[0].std(axis=0), rtol=0.02)


def test_a_plain_base_in_many_dimensions_has_few_directions():
    """One that is wide, of 250 dimensions: its variance, and no matrix in the base."""
    rng, dim = np.random.default_rng(2), 250
    direction = np.ones(dim) / dim**0.5
    z = rng.normal(size=(1, 2000, dim)) + 7 * rng.normal(size=(1, 2000, 1)) * direction
    base = _plain_base(quick_at(np.zeros(dim), np.eye(dim)), [z.astype(np.float32)])
    assert all(x.size <= 32 * dim for x in jax.tree.leaves(base))
    draws = np.asarray(base.sample_many(jax.random.key(0), 20_000))
    # Of 2000 particles and 20 000 draws: five standard errors of the first, and shrinkage.
    assert abs(np.var(draws @ direction) / 50 - 1) < 5 * (2 / 2000) ** 0.5 + 0.05
    assert abs(np.mean(np.var(draws, axis=0)) / (1 + 49 / dim) - 1) < 0.05


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

    def freeze(run, num_levels):
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
