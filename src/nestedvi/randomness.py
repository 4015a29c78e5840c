"""Randomness on the host, from a key of JAX: the same key gives the same numbers."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key
from nestedvi.host import arrays_on_host

__all__ = ["generator", "split_on_host"]


def generator(key: Key) -> np.random.Generator:
    """A generator of NumPy that is seeded by the key. Use the key for nothing else."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    return np.random.default_rng(np.asarray(key).ravel().tolist())


def split_on_host(key: Key, num: int) -> list[Key]:
    """`num` keys, for a loop on the host: no program is compiled for each number of them. Use the
    key for nothing else.
    """
    impl = "threefry2x32"
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        impl = str(jax.random.key_impl(key))
    words = generator(key).integers(2**32, size=(num, *_size(impl)), dtype=np.uint32)
    with arrays_on_host():
        return [jax.random.wrap_key_data(row, impl=impl) for row in words]


@cache
def _size(impl: str) -> tuple[int, ...]:
    return jax.random.key_data(jax.random.key(0, impl=impl)).shape
