"""Bases for many dimensions: particles' moments, and a Gaussian that particles mend."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from scipy import stats

import nestedvi as nvi
from nestedvi.densities import LowRankNormal, NormalGiven
from nestedvi.densities.low_rank import low_rank_of
from nestedvi.densities.mixtures import StudentMixture
from nestedvi.fitting.importance import Trial
from nestedvi.fitting.variational import Gaussian
from nestedvi.inference.plain import PlainBases, held_out
from nestedvi.inference.quick import QuickBase

KEY = jax.random.key(0)
NONE = QuickBase(None, False, 0, 0)


def quick_at(mean, root):
    base = StudentMixture(jnp.asarray(mean)[None], jnp.asarray(root)[None], jnp.zeros(1))
    return QuickBase(Trial(base, 0.0, 0.01, 0.9, 0.5, 1000), False, 0, 0)


def rough(dim):
    """A base that anything is better than."""
    return LowRankNormal(jnp.full(dim, 9.0), low_rank_of(np.eye(dim)))


def test_particles_are_held_out_in_runs_of_neighbours():
    """A seventh of them, or nearly, twenty at a time; fewer at a time where there are few."""
    held = held_out(1400)
    assert held[:20].all() and not held[20:140].any() and held[140:160].all()
    assert held.mean() == 1 / 7 and held_out(21).sum() == 3


def test_a_plain_base_has_the_particles_moments():
    """Those of two runs together, in the precision that draws are made in."""
    rng, dim = np.random.default_rng(0), 3
    root = np.linalg.cholesky(np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]]))
    runs = [(rng.normal(size=(1, 4000, dim)) @ root.T + 1.0).astype(np.float32) for _ in "ab"]
    base = PlainBases(quick_at(np.zeros(dim), np.eye(dim))).better(KEY, rough(dim), runs, 4000)
    assert base.means.dtype == jnp.float32
    np.testing.assert_allclose(base.means[0], 1.0, atol=5 * 1.5 / np.sqrt(8000))
    np.testing.assert_allclose(base.roots[0] @ base.roots[0].T, root @ root.T, atol=0.15)


def test_a_plain_base_without_modes_is_one_gaussian():
    z = np.random.default_rng(1).normal(3.0, 2.0, size=(1, 500, 2)).astype(np.float32)
    base = PlainBases(NONE).better(KEY, rough(2), [z], 500)
    np.testing.assert_allclose(base.means[0], z[0].mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(np.diag(base.roots[0]), z[0].std(axis=0), rtol=0.02)


def test_a_plain_base_in_many_dimensions_has_few_directions():
    """One that is wide, of 250 dimensions: its variance, and no matrix in the base."""
    rng, dim = np.random.default_rng(2), 250
    direction = np.ones(dim) / dim**0.5
    z = rng.normal(size=(1, 2000, dim)) + 7 * rng.normal(size=(1, 2000, 1)) * direction
    plain = PlainBases(quick_at(np.zeros(dim), np.eye(dim)))
    base = plain.better(KEY, rough(dim), [z.astype(np.float32)], 2000)
    assert all(x.size <= 32 * dim for x in jax.tree.leaves(base))
    draws = np.asarray(base.sample_many(jax.random.key(0), 20_000))
    # Of 2000 particles and 20 000 draws: five standard errors of the first, and shrinkage.
    assert abs(np.var(draws @ direction) / 50 - 1) < 5 * (2 / 2000) ** 0.5 + 0.05
    assert abs(np.mean(np.var(draws, axis=0)) / (1 + 49 / dim) - 1) < 0.05


def test_no_base_is_better_than_the_one_that_particles_are_from():
    """Of 2000 independent particles in ten dimensions a fit is 65 / 2000 nats off."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(1, 2000, 10)).astype(np.float32)
    truth = LowRankNormal(jnp.zeros(10), low_rank_of(np.eye(10)))
    assert PlainBases(NONE).better(KEY, truth, [z], 2000) is None
    assert PlainBases(NONE).better(KEY, rough(10), [z], 2000) is not None


def test_the_base_before_is_scored_where_it_is_new():
    """It was fitted to all of the run before the last, where it looks better than it is: the last
    run, of another 400 particles in 60 dimensions, says that twice as many make a better one.
    """
    rng, dim = np.random.default_rng(6), 60
    a = rng.normal(size=(dim, dim)) / dim**0.5 + np.eye(dim)
    runs = [np.repeat(rng.normal(size=(1, 400, dim)) @ a, 4, axis=0) for _ in "ab"]
    plain = PlainBases(NONE)
    before = plain.better(KEY, rough(dim), runs[:1], 400)
    rows, held = np.concatenate(runs), held_out(400)
    again = plain.better(KEY, rough(dim), [x[:, ~held] for x in runs], 400)
    on_both = [np.mean(x.log_prob_many(rows[:, held].reshape(-1, dim))) for x in (before, again)]
    on_last = [np.mean(x.log_prob_many(runs[1][0, held])) for x in (before, again)]
    assert on_both[0] > on_both[1] and on_last[0] < on_last[1] - 0.1
    assert plain.better(KEY, before, runs, 400) is not None


def test_few_particles_mend_a_gaussian_where_it_is_wrong():
    """700 particles in 220 correlated dimensions, the first with tails that no Gaussian has and the
    others hardly moved by it: what is taken is the Gaussian of gradients, given a few coordinates
    that particles say. That differs from the truth by less than a nat, the particles' own
    covariance by many.
    """
    rng, dim = np.random.default_rng(4), 220
    a = rng.normal(size=(dim, dim)) / dim**0.5 + np.eye(dim)
    root = np.linalg.cholesky(a @ a.T)
    root[:, 0] = 0.02 * (1 + 49 * (np.arange(dim) == 0))
    eps = rng.normal(size=(1, 700, dim))
    eps[..., 0] = 2 * rng.standard_t(3, size=(1, 700))
    z = (eps @ root.T).astype(np.float32)
    quick = quick_at(np.zeros(dim), np.eye(dim))
    quick = quick._replace(gaussian=Gaussian(np.zeros(dim), root, 0.0, 0))
    base = PlainBases(quick).better(KEY, rough(dim), [z], 700)
    assert isinstance(base, NormalGiven) and 0 in np.asarray(base.some) and len(base.some) == 4
    fresh = rng.normal(size=(5000, dim))
    fresh[:, 0] = 2 * rng.standard_t(3, size=5000)
    log_det = np.log(np.diag(root)).sum()
    log_eps = -0.5 * np.sum(fresh[:, 1:] ** 2, axis=1) - 0.5 * (dim - 1) * np.log(2 * np.pi)
    log_p = stats.t(3, scale=2).logpdf(fresh[:, 0]) + log_eps - log_det
    rows = (fresh @ root.T).astype(np.float32)
    own = PlainBases(quick_at(np.zeros(dim), np.eye(dim))).better(KEY, rough(dim), [z], 700)
    assert 0 <= np.mean(log_p - base.log_prob_many(rows)) < 1
    assert np.mean(log_p - own.log_prob_many(rows)) > 5


def test_moves_in_many_dimensions_are_in_the_metric_of_the_gaussian():
    gaussian = Gaussian(np.zeros(220), 3 * np.eye(220), 0.0, 0)
    z = np.random.default_rng(5).normal(size=(50, 220))
    root = PlainBases(NONE._replace(gaussian=gaussian)).move(220).root(z)
    np.testing.assert_allclose(root.full, 3 * np.eye(220), atol=1e-9)
    assert PlainBases(NONE).move(220).known is None
    assert PlainBases(NONE._replace(gaussian=gaussian)).move(100).known is None


@pytest.mark.slow
def test_a_whole_answer_where_no_mode_will_do():
    """Eighty skew coordinates, turned: γ is the product of exp(a z − eᶻ), whose integrals are Γ(a).
    The mixture at the mode is not accepted, and standard errors are some 0.1.
    """
    rng, dim = np.random.default_rng(0), 80
    turn = jnp.asarray(np.linalg.qr(rng.normal(size=(dim, dim)))[0], jnp.float32)
    a = np.exp(rng.uniform(0, 1.5, dim))

    def log_gamma(z):
        return jnp.sum(jnp.asarray(a, jnp.float32) * (turn @ z) - jnp.exp(turn @ z))

    answer = nvi.sample(KEY, log_gamma, dim=dim)
    assert "frozen run" in answer.timings
    assert abs(answer.log_Z - scipy.special.gammaln(a).sum()) < 4 * answer.log_Z_stderr < 0.5
