"""Generators of NumPy from keys of JAX."""

import jax
import numpy as np
import pytest

from nestedvi.randomness import generator, split_on_host


def test_a_key_gives_one_stream_and_another_key_another():
    a, b = (generator(jax.random.key(3)).uniform(size=4) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, generator(jax.random.PRNGKey(3)).uniform(size=4))
    assert not np.array_equal(a, generator(jax.random.key(4)).uniform(size=4))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_for_the_host_are_many_and_the_same_again(impl):
    key = jax.random.key(3, impl=impl)
    first, again = (split_on_host(key, 5) for _ in range(2))
    data = [np.asarray(jax.random.key_data(k)).tolist() for k in first]
    assert data == [np.asarray(jax.random.key_data(k)).tolist() for k in again]
    assert len({str(x) for x in data}) == 5 and first[0].dtype == key.dtype
    assert jax.random.uniform(first[0]) != jax.random.uniform(first[1])


def test_old_keys_are_taken_too():
    old, new = split_on_host(jax.random.PRNGKey(3), 2), split_on_host(jax.random.key(3), 2)
    assert jax.random.uniform(old[1]) == jax.random.uniform(new[1])
