"""The shape of the bulk: what a heavy tail may not change, and that a rotation turns it."""

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi.fitting.mixtures import bulk_root


def test_bulk_is_the_scatter_of_a_t_distribution(key):
    """Data from a t of three degrees, whose covariance is three times its scatter matrix, give the
    scatter back.
    """
    key_normal, key_gamma = jax.random.split(key)
    root = jnp.array([[2.0, 0.0], [1.0, 0.5]])
    noise = jax.random.normal(key_normal, (40_000, 2)) / jnp.sqrt(
        jax.random.chisquare(key_gamma, 3, (40_000, 1)) / 3
    )
    found = bulk_root(5.0 + noise @ root.T)
    # Every entry's standard error is under 2 % of the larger variance.
    np.testing.assert_allclose(found @ found.T, root @ root.T, atol=5 * 0.02 * 5)
    assert np.linalg.norm(np.cov((noise @ root.T).T)) > 2 * np.linalg.norm(found @ found.T)


def test_bulk_turns_with_the_particles(key):
    z = jax.random.normal(key, (500, 3)) ** 3
    turn = jax.random.orthogonal(jax.random.key(1), 3)
    here, there = bulk_root(z), bulk_root(z @ turn.T)
    np.testing.assert_allclose(there @ there.T, turn @ here @ here.T @ turn.T, rtol=1e-3, atol=1e-4)
