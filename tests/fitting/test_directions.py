"""Directions that do not depend on the user's coordinates: independent ones, and those that rule
the spread of others.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.fitting.directions import independent_directions, rulers_first, whiten


def turned(z, rng):
    """The data in coordinates that nothing was built for, whitened there, and the rows that lead
    back to the first ones.
    """
    rotation = np.linalg.qr(rng.normal(size=(z.shape[1],) * 2))[0]
    _, root, u = map(jnp.float32, whiten(z @ rotation.T))
    back = rotation.T @ np.asarray(root)
    return u, back / np.linalg.norm(back, axis=1, keepdims=True)


@pytest.mark.slow
def test_what_rules_the_spread_of_others_comes_first(key):
    """Two scales, each for half of eight coordinates: the first two rows span the two scales'
    directions.
    """
    rng = np.random.default_rng(0)
    scales = rng.normal(size=(6000, 2))
    rest = rng.normal(size=(6000, 8)) * np.exp(0.6 * np.repeat(scales, 4, axis=1))
    u, back = turned(np.concatenate([scales, rest], axis=1), rng)
    rows = np.asarray(rulers_first(u, independent_directions(key, u), 4))
    np.testing.assert_allclose(rows @ rows.T, np.eye(10), atol=1e-4)
    assert np.linalg.norm(rows[:2] @ back[:2].T, axis=0).min() > 0.95


def test_independent_coordinates_stay_as_they_are(key):
    """Skewed ones have third moments of their own, but rule nothing."""
    rng = np.random.default_rng(1)
    u, _ = turned(rng.exponential(size=(6000, 6)), rng)
    rows = independent_directions(key, u)
    np.testing.assert_array_equal(np.asarray(rulers_first(u, rows, 4)), np.asarray(rows))
