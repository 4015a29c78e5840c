"""Generators of NumPy from keys of JAX."""

import jax
import numpy as np

from nestedvi.randomness import generator


def test_a_key_gives_one_stream_and_another_key_another():
    a, b = (generator(jax.random.key(3)).uniform(size=4) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, generator(jax.random.PRNGKey(3)).uniform(size=4))
    assert not np.array_equal(a, generator(jax.random.key(4)).uniform(size=4))
