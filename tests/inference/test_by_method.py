"""Rows of the methods table as answers: log Z and moments of a Gaussian far from the origin, and
batches against the runs themselves.
"""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.inference.by_method import answer_from_runs, run_batches, trace_runs
from nestedvi.particles.resampling import Particles
from nestedvi.sampler.run import LevelInfo, Run

LOG_Z = 5.0
LOC = np.array([3.0, -20.0, 0.1], dtype=np.float32)
SCALE = np.array([0.05, 10.0, 1.0], dtype=np.float32)


def shifted(z):
    """exp(5) N(LOC, SCALE²): far from the origin, two hundred times wider one way than the
    other.
    """
    return LOG_Z + jnp.sum(
        -0.5 * ((z - LOC) / SCALE) ** 2 - jnp.log(SCALE) - 0.5 * np.log(2 * np.pi)
    )


@pytest.fixture(scope="module")
def posterior():
    return nvi.sample(
        jax.random.key(0),
        shifted,
        dim=3,
        method="nvir-star",
        num_levels=3,
        num_steps=300,
        num_particles=2000,
    )


def moments(posterior):
    w = np.asarray(nvi.particles.normalise(posterior.log_weights))
    z = np.asarray(posterior.samples)
    mean = w @ z
    return mean, np.sqrt(w @ (z - mean) ** 2)


@pytest.mark.slow
def test_a_learned_sampler_finds_the_normaliser(posterior):
    assert posterior.samples.shape == (2000, 3) and posterior.log_weights.shape == (2000,)
    assert 0 < posterior.log_Z_stderr < 0.1
    assert abs(posterior.log_Z - LOG_Z) < 4.5 * posterior.log_Z_stderr
    assert posterior.khat < 0.7
    assert 100 < posterior.ess <= 2000


@pytest.mark.slow
def test_its_weighted_moments_are_those_of_the_target(posterior):
    """Means to five standard errors of ESS draws, spreads likewise (the relative error of a spread
    is 1/√(2n)).
    """
    mean, spread = moments(posterior)
    assert (abs(mean - LOC) < 5 * SCALE / np.sqrt(posterior.ess)).all(), mean
    assert (abs(spread / SCALE - 1) < 5 / np.sqrt(2 * posterior.ess)).all(), spread


@pytest.mark.slow
def test_equal_weights_on_request(posterior):
    draws = posterior.resample(jax.random.key(1), 4000)
    assert draws.shape == (4000, 3)
    mean, _ = moments(posterior)
    # Given the particles, the draws' mean is the weighted mean, up to the error of 4000 draws.
    assert (abs(draws.mean(axis=0) - mean) < 5 * SCALE / np.sqrt(4000)).all()
    assert set(map(tuple, np.asarray(draws[:50]))) <= set(map(tuple, np.asarray(posterior.samples)))


def test_a_density_without_mass_is_refused_before_training():
    def nothing(z):
        return jnp.where(jnp.sum(z**2) >= 0, -jnp.inf, 0.0)

    with pytest.raises(nvi.errors.DensityError, match=r"−inf wherever the search looked"):
        nvi.sample(jax.random.key(0), nothing, dim=2, method="nvi", num_steps=10**9)


@pytest.mark.slow
def test_heavy_tails_are_not_passed_over():
    """Cauchy tails in two dimensions, weighted against a Gaussian: k̂ warns."""

    def heavy(z):
        return -jnp.sum(jnp.log1p((z / 0.01) ** 2)) - 2 * np.log(np.pi * 0.01)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = nvi.sample(
            jax.random.key(0), heavy, dim=2, method="ais", num_levels=2, num_particles=500
        )
    assert posterior.khat > 0.7
    assert any(re.search(r"k̂ = .* > 0.7", sentence) for sentence in posterior.diagnosis)
    messages = [str(w.message) for w in caught if issubclass(w.category, nvi.NestedviWarning)]
    assert tuple(messages) == posterior.diagnosis


@pytest.mark.slow
def test_batches_are_runs_and_their_mean_is_the_answer(key):
    target = Pullback(
        nvi.DiagonalNormal(jnp.ones(2), 1.5), AffineMap(jnp.ones(2), jnp.full(2, 3.0))
    )
    initial = nvi.DiagonalNormal(jnp.zeros(2), 1.0)
    path = nvi.Annealing(initial, target, nvi.LinearSchedule(3))
    sampler = nvi.NestedSampler(initial, path, nvi.Shared(nvi.RandomWalk(jnp.ones(2)), 2))
    keys = jax.random.split(key, 6)
    runs = run_batches(keys, sampler, 40, draws=2)
    answer = answer_from_runs(runs, target, 235)
    alone = nvi.run(keys[3], sampler, 40, draws=2)
    np.testing.assert_allclose(runs.log_Z_hat[3], alone.log_Z_hat, rtol=1e-5)
    Z_hat = np.exp(np.asarray(runs.log_Z_hat, np.float64))
    assert answer.log_Z == pytest.approx(np.log(Z_hat.mean()), abs=1e-5)
    stderr = Z_hat.std(ddof=1) / 6**0.5 / Z_hat.mean()
    assert answer.log_Z_stderr == pytest.approx(stderr, rel=1e-3)
    assert answer.z.shape == (235, 2) and answer.num_batches == 6 and answer.num_ancestors <= 240
    np.testing.assert_allclose(answer.z[0], 1 + 3 * runs.particles.z[0, 0], rtol=1e-5)


def test_batches_of_a_sampler(key):
    """Two batches of two particles and three levels; the first level drew twice as many."""
    log_w = jnp.array([[0.0, 1.0], [2.0, 2.0]])
    info = LevelInfo(*[jnp.array([[4.0, 2.0, 1.5], [2.0, 1.0, 2.0]])] * 7)
    runs = Run(
        Particles(jnp.zeros((2, 2, 1)), None, log_w),
        info,
        jnp.array([[[0, 1], [1, 1]], [[0, 1], [0, 1]]]),
        None,
        jnp.log(jnp.array([[0.5, 0.3, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]])),
        jnp.array([[0, 3], [1, 2]]),
    )
    base = nvi.DiagonalNormal(jnp.zeros(1), 1.0)
    path = nvi.Annealing(base, base, nvi.GivenSchedule([0.0, 0.4, 1.0]))
    walk = nvi.RandomWalk(jnp.ones(1))
    trace = trace_runs(runs, nvi.NestedSampler(base, path, nvi.Shared(walk, 2), nvi.Resampling()))
    np.testing.assert_allclose(trace.log_Z, [np.log((1 + np.e) / 2), 2.0], rtol=1e-6)
    assert trace.num_ancestors.tolist() == [1, 2]
    for level, shares in zip(trace.levels, ([1.0, 1.0, 0.75], [0.5, 0.5, 1.0]), strict=True):
        np.testing.assert_allclose(level.beta, [0.0, 0.4, 1.0], rtol=1e-6)
        np.testing.assert_allclose(level.ess_share, shares, rtol=1e-6)
    assert trace.weight_share[-1] == pytest.approx(1.0) and trace.weight_share[12] > 0.2
