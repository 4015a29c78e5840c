"""Rows of the methods table as answers: log Z and moments of a Gaussian far from the origin."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi

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
