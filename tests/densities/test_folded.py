"""A symmetric density on one ordering of its labels."""

import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.densities.folded import Folded


def test_all_mass_is_on_one_ordering(key, x64):
    density = Folded(nvi.DiagonalNormal(jnp.zeros(2), 1.3), jnp.sort, 2)
    axis = np.linspace(-8, 8, 401)
    grid = jnp.asarray(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    mass = np.exp(jax.vmap(density.log_gamma)(grid)).sum() * (axis[1] - axis[0]) ** 2
    # The diagonal of the grid is counted whole.
    np.testing.assert_allclose(mass, 1.0, atol=0.02)
    draws = jax.vmap(density.sample)(jax.random.split(key, 100))
    assert (draws[:, 0] <= draws[:, 1]).all()
    assert jnp.isneginf(density.log_gamma(jnp.array([1.0, -1.0])))
