"""Randomness on the host, from a key of JAX: the same key gives the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key

__all__ = ["generator"]


def generator(key: Key) -> np.random.Generator:
    """A generator of NumPy that is seeded by the key. Use the key for nothing else."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    return np.random.default_rng(np.asarray(key).ravel().tolist())
