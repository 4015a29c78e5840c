"""Roots of covariances: whitened data; the shape of the bulk, which a heavy tail may not change and
a rotation turns.
"""

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi.fitting.covariances import bulk_root, whiten


def test_bulk_is_the_scatter_of_a_t_distribution(key):
    """Data from a t of three degrees, whose covariance is three times its scatter matrix, give the
    scatter back.
    """
    key_normal, key_gamma = jax.random.split(key)
    root = jnp.array([[2.0, 0.0], [1.0, 0.5]])
    noise = jax.random.normal(key_normal, (40_000, 2)) / jnp.sqrt(
        jax.random.chisquare(key_gamma, 3, (40_000, 1)) / 3
    )
    bulk = bulk_root(5.0 + noise @ root.T)
    # Every entry's standard error is under 2 % of the larger variance.
    np.testing.assert_allclose(bulk @ bulk.T, root @ root.T, atol=5 * 0.02 * 5)
    assert np.linalg.norm(np.cov((noise @ root.T).T)) > 2 * np.linalg.norm(bulk @ bulk.T)


def test_bulk_turns_with_the_particles(key):
    z = jax.random.normal(key, (500, 3)) ** 3
    turn = jax.random.orthogonal(jax.random.key(1), 3)
    here, there = bulk_root(z), bulk_root(z @ turn.T)
    np.testing.assert_allclose(there @ there.T, turn @ here @ here.T @ turn.T, rtol=1e-3, atol=1e-4)


def test_whitened_data_have_unit_covariance(key):
    z = (
        jax.random.normal(key, (3000, 3))
        @ jnp.array([[2.0, 0.0, 0.0], [1.0, 0.3, 0.0], [0.0, 5.0, 1.0]])
        + 4.0
    )
    mean, root, u = whiten(z)
    np.testing.assert_allclose(np.cov(u.T), np.eye(3), atol=0.02)
    np.testing.assert_allclose(mean + u @ root.T, z, rtol=1e-3, atol=1e-3)
