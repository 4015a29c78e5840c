"""The empirical distribution of given points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi


def test_the_empirical_distribution(key):
    """Every point as often as any other, whole pytrees at a time."""
    density = nvi.densities.Empirical({"a": jnp.arange(4.0), "b": 10 * jnp.arange(4.0)[:, None]})
    draws = jax.vmap(density.sample)(jax.random.split(key, 4000))
    np.testing.assert_array_equal(draws["b"][:, 0], 10 * draws["a"])
    share = np.bincount(np.asarray(draws["a"], int), minlength=4) / 4000
    assert (np.abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 4000)).all()
    np.testing.assert_allclose(
        density.log_gamma(density.sample(key)) - density.log_Z, -np.log(4), rtol=1e-6
    )
    with pytest.raises(ValueError, match="needs points"):
        nvi.densities.Empirical(())


def test_draws_carry_the_points_own_gradient(key):
    """A draw is a point: its derivative with respect to the points is one there and zero
    elsewhere.
    """
    gradient = jax.grad(lambda x: nvi.densities.Empirical(x).sample(key))(jnp.arange(5.0))
    drawn = int(nvi.densities.Empirical(jnp.arange(5.0)).sample(key))
    np.testing.assert_array_equal(gradient, np.eye(5)[drawn])
