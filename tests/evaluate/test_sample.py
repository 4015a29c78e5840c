"""One call from a log density to particles and log Z."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.evaluate.pilot import pilot

LOG_Z = 5.0
LOC = np.array([3.0, -20.0, 0.1], dtype=np.float32)
SCALE = np.array([0.05, 10.0, 1.0], dtype=np.float32)


def shifted(z):
    """exp(5) N(LOC, SCALE²): far from the origin, two hundred times wider one way than the other."""
    return LOG_Z + jnp.sum(-0.5 * ((z - LOC) / SCALE) ** 2 - jnp.log(SCALE) - 0.5 * np.log(2 * np.pi))


@pytest.fixture(scope="module")
def posterior():
    return nvi.sample(shifted, jax.random.key(0), dim=3, num_levels=3, num_steps=300, num_particles=2000)


def moments(posterior):
    w = np.asarray(nvi.normalise(posterior.log_weights))
    z = np.asarray(posterior.samples)
    mean = w @ z
    return mean, np.sqrt(w @ (z - mean) ** 2)


def test_a_learned_sampler_finds_the_normaliser(posterior):
    assert posterior.samples.shape == (2000, 3) and posterior.log_weights.shape == (2000,)
    assert 0 < posterior.log_Z_stderr < 0.1
    assert abs(posterior.log_Z - LOG_Z) < 4.5 * posterior.log_Z_stderr
    assert posterior.khat < 0.7
    assert 100 < posterior.ess <= 2000


def test_its_weighted_moments_are_those_of_the_target(posterior):
    """Means to five standard errors of ESS draws, spreads likewise (the relative error of a spread is 1/√(2n))."""
    mean, spread = moments(posterior)
    assert (abs(mean - LOC) < 5 * SCALE / np.sqrt(posterior.ess)).all(), mean
    assert (abs(spread / SCALE - 1) < 5 / np.sqrt(2 * posterior.ess)).all(), spread


def test_equal_weights_on_request(posterior):
    draws = posterior.resample(jax.random.key(1), 4000)
    assert draws.shape == (4000, 3)
    mean, _ = moments(posterior)
    # Given the particles, the draws' mean is the weighted mean, up to the error of 4000 draws.
    assert (abs(draws.mean(axis=0) - mean) < 5 * SCALE / np.sqrt(4000)).all()
    assert set(map(tuple, np.asarray(draws[:50]))) <= set(map(tuple, np.asarray(posterior.samples)))


def test_particles_may_be_pytrees_and_methods_may_learn_nothing():
    """exp(5) N(a; 2, 0.5²) N(b; −1, 1)²: a scalar and a vector, with an SMC sampler that is not trained."""
    example = {"a": 0, "b": np.zeros(2)}

    def log_density(z):
        assert z["a"].shape == () and z["b"].shape == (2,)
        log_a = -0.5 * ((z["a"] - 2) / 0.5) ** 2 - np.log(0.5)
        return LOG_Z + log_a + jnp.sum(-0.5 * (z["b"] + 1) ** 2) - 1.5 * np.log(2 * np.pi)

    posterior = nvi.sample(log_density, jax.random.key(2), example=example, method="smc", num_particles=1001)
    assert posterior.samples["a"].shape == (1001,) and posterior.samples["b"].shape == (1001, 2)
    assert abs(posterior.log_Z - LOG_Z) < 4.5 * posterior.log_Z_stderr < 0.5
    w = nvi.normalise(posterior.log_weights)
    assert abs(float(w @ posterior.samples["a"]) - 2) < 5 * 0.5 / np.sqrt(posterior.ess)
    draws = posterior.resample(jax.random.key(3), 7)
    assert draws["a"].shape == (7,) and draws["b"].shape == (7, 2)


@pytest.mark.parametrize("shape", [{}, {"dim": 2, "example": np.zeros(2)}], ids=["neither", "both"])
def test_the_shape_of_a_particle_is_said_once(shape):
    with pytest.raises(ValueError, match=r"dim=.*example=.*only one"):
        nvi.sample(shifted, jax.random.key(0), **shape)


def test_a_density_without_mass_is_refused_before_training():
    nothing = lambda z: jnp.where(jnp.sum(z**2) >= 0, -jnp.inf, 0.0)  # noqa: E731
    with pytest.raises(nvi.DensityError, match=r"−inf wherever the search looked"):
        nvi.sample(nothing, jax.random.key(0), dim=2, num_steps=10**9)


def test_heavy_tails_are_not_passed_over():
    """Cauchy tails in two dimensions, weighted against a Gaussian: k̂ warns."""
    heavy = lambda z: -jnp.sum(jnp.log1p((z / 0.01) ** 2)) - 2 * np.log(np.pi * 0.01)  # noqa: E731
    with pytest.warns(nvi.NestedviWarning, match=r"k̂ = .* > 0.7"):
        posterior = nvi.sample(heavy, jax.random.key(0), dim=2, method="ais", num_levels=2, num_particles=500)
    assert posterior.khat > 0.7


def test_the_pilot_finds_place_and_size():
    """Mean and spread of the target, to a fifth: good enough to start learning from."""
    found = pilot(jax.random.key(5), nvi.Density(shifted).log_gamma, 3)
    assert float(found.beta) == 1.0 and 1 < int(found.num_levels) < 200
    assert (abs(found.mean - LOC) < 0.2 * SCALE).all(), found.mean
    assert (abs(found.spread / SCALE - 1) < 0.2).all(), found.spread


def test_draws_for_arviz(posterior):
    pytest.importorskip("arviz")
    data = posterior.to_arviz(jax.random.key(0), 50)
    (name,) = data.posterior.data_vars
    assert data.posterior[name].shape[:2] == (1, 50)
