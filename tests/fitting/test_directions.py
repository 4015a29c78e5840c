"""Directions that do not depend on the user's coordinates: independent ones, and those that set the
scale of others.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.densities.affine import whiten
from nestedvi.fitting.directions import independent_directions, scale_coordinates_first


def turned(z, rng):
    """The data in coordinates that nothing was built for, whitened there, and the rows that lead
    back to the first ones.
    """
    rotation = np.linalg.qr(rng.normal(size=(z.shape[1],) * 2))[0]
    _, root, u = map(jnp.float32, whiten(z @ rotation.T))
    back = rotation.T @ np.asarray(root)
    return u, back / np.linalg.norm(back, axis=1, keepdims=True)


@pytest.mark.slow
def test_what_sets_the_scale_of_others_comes_first(key):
    """Two scales, each for half of eight coordinates: the first two rows span the two scales'
    directions.
    """
    rng = np.random.default_rng(0)
    scales = rng.normal(size=(6000, 2))
    rest = rng.normal(size=(6000, 8)) * np.exp(0.6 * np.repeat(scales, 4, axis=1))
    u, back = turned(np.concatenate([scales, rest], axis=1), rng)
    rows = np.asarray(scale_coordinates_first(u, independent_directions(key, u), 4))
    np.testing.assert_allclose(rows @ rows.T, np.eye(10), atol=1e-4)
    assert np.linalg.norm(rows[:2] @ back[:2].T, axis=0).min() > 0.95


def test_independent_coordinates_stay_as_they_are(key):
    """Skewed ones have third moments of their own, but set no scale."""
    rng = np.random.default_rng(1)
    u, _ = turned(rng.exponential(size=(6000, 6)), rng)
    rows = independent_directions(key, u)
    np.testing.assert_array_equal(np.asarray(scale_coordinates_first(u, rows, 4)), np.asarray(rows))


def test_independent_directions_are_found_in_any_rotation(key):
    """Two two-point sources and a Gaussian, turned: both sources come out, and the Gaussian comes
    first.
    """
    key_s, key_g, key_q, key_ica = jax.random.split(key, 4)
    sources = 2.0 * jax.random.bernoulli(key_s, shape=(4000, 2)) - 1.0
    s = jnp.concatenate(
        [
            sources + 0.1 * jax.random.normal(key_q, sources.shape),
            jax.random.normal(key_g, (4000, 1)),
        ],
        axis=1,
    )
    turn = jnp.asarray(np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0], jnp.float32)
    u = jnp.float32(whiten(s @ turn)[2])
    rows = independent_directions(key_ica, u)
    np.testing.assert_allclose(rows @ rows.T, np.eye(3), atol=1e-4)
    match = np.abs(np.corrcoef((u @ rows.T).T, s.T)[:3, 3:])
    assert match[0, 2] > 0.99 and match[1:, :2].max(axis=1).min() > 0.99
