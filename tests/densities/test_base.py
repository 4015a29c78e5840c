"""What counts as a density, and what is refused."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi
from nestedvi.densities.base import Density, check_shape, log_values
from nestedvi.precision import double_precision


def test_discrete_distributions_score_without_a_grid(x64):
    """A batch of independent Poissons is one particle: their log probabilities add up."""
    density = nvi.densities.as_sampleable(dist.Poisson(jnp.array([0.5, 3.0])))
    expected = sum(
        k * math.log(rate) - rate - math.lgamma(k + 1) for k, rate in ((2, 0.5), (1, 3.0))
    )
    np.testing.assert_allclose(density.log_gamma(jnp.array([2, 1])), expected, rtol=1e-12)


def test_as_density_accepts_what_it_says():
    normal = nvi.DiagonalNormal(0.0, 1.0)
    assert nvi.densities.as_density(normal) is normal
    assert isinstance(nvi.densities.as_density(dist.Normal()), nvi.densities.Numpyro)
    assert float(nvi.densities.as_density(lambda z: -2.0 * z).log_gamma(jnp.array(3.0))) == -6.0
    with pytest.raises(TypeError, match="got int"):
        nvi.densities.as_density(3)


def test_as_sampleable_refuses_what_can_only_be_scored():
    with pytest.raises(TypeError, match=r"sampled exactly.*got Density"):
        nvi.densities.as_sampleable(lambda z: -z)
    with pytest.raises(TypeError, match="ManyWell"):
        nvi.densities.as_sampleable(nvi.targets.ManyWell())


def test_a_log_density_must_be_a_scalar():
    with pytest.raises(ValueError, match=r"scalar.*shape \(3,\)"):
        nvi.Density(lambda z: -(z**2)).log_gamma(jnp.zeros(3))


def test_a_scaled_density_has_another_normaliser_and_the_same_draws(key, x64):
    normal = nvi.DiagonalNormal(jnp.zeros(2), 3.0)
    scaled = nvi.densities.Scaled(normal, -1.7)
    z = normal.sample(key)
    np.testing.assert_allclose(scaled.log_gamma(z), normal.log_gamma(z) - 1.7, rtol=1e-12)
    np.testing.assert_allclose(scaled.log_Z, -1.7, rtol=1e-12)
    np.testing.assert_array_equal(scaled.sample(key), z)


def test_a_particle_of_another_shape_is_refused():
    check_shape(np.zeros((2, 3)), (2, 3), "This")
    with pytest.raises(
        ValueError, match=r"This scores particles of shape \(2,\); got shape \(3,\)"
    ):
        check_shape(np.zeros(3), (2,), "This")


def test_values_come_in_the_precision_of_the_particles():
    z = np.full((3, 1), 0.1)
    with double_precision():
        values = log_values(Density(lambda z: z[0]), z)
    np.testing.assert_array_equal(values, 0.1)
