"""Gaussians and mixtures of round ones, against SciPy and a grid."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nestedvi as nvi

POINT = np.array([0.7, -1.2])


def test_one_dimension_too(x64):
    density = nvi.DiagonalNormal(0.3, 1.5)
    nodes = jnp.linspace(-20.0, 20.0, 2001)[:, None]
    mass = 0.02 * jnp.exp(jax.vmap(density.log_gamma)(nodes))
    np.testing.assert_allclose(
        [jnp.sum(mass), mass @ nodes[:, 0], mass @ (nodes[:, 0] - 0.3) ** 2],
        [1, 0.3, 2.25],
        atol=1e-9,
    )


def test_reparameterised_draws_carry_the_gradient(key, x64):
    """z = loc + exp(log_scale) ε: ∂z/∂loc = 1 and ∂z/∂log_scale = z − loc."""
    density = nvi.DiagonalNormal([0.5, -1.0], [0.7, 2.0])
    assert density.reparameterised
    gradient = eqx.filter_grad(lambda d: jnp.sum(d.sample(key)))(density)
    np.testing.assert_allclose(gradient.loc, 1.0)
    np.testing.assert_allclose(gradient.log_scale, density.sample(key) - density.loc, rtol=1e-12)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), [1.0, 0.0]])
def test_a_normal_needs_a_positive_scale(scale):
    with pytest.raises(ValueError, match="must be positive"):
        nvi.DiagonalNormal([0.0, 0.0], scale)


def test_mixture_means_need_two_axes():
    with pytest.raises(ValueError, match=r"\(components, dim\); got \(3,\)"):
        nvi.densities.GaussianMixture([0.0, 1.0, 2.0], 1.0)


def test_a_mixture_of_round_gaussians(x64):
    """Weights need not sum to one."""
    means, weights = np.array([[-2.0, 0.5], [1.0, -1.0]]), np.array([1.0, 3.0])
    density = nvi.densities.GaussianMixture(means, 0.4, weights=weights)
    parts = [stats.multivariate_normal(m, 0.4 * np.eye(2)).pdf(POINT) for m in means]
    np.testing.assert_allclose(
        density.log_gamma(jnp.asarray(POINT)), np.log(weights @ parts / 4), rtol=1e-10
    )
