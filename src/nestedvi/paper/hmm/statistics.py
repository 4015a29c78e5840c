"""Sufficient statistics of each cluster's observations, which proposals for η and moves of η
start from. They hold no prior and no network.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Statistics"]


class Statistics(NamedTuple):
    """Number, mean and sum of squared deviations of each cluster's observations: all that p(x, z |
    η) needs.
    """

    number: Float[Array, " clusters"]
    mean: Float[Array, " clusters"]
    spread: Float[Array, " clusters"]

    @classmethod
    def soft(cls, t: Float[Array, "steps clusters"], xs: Float[Array, " steps"]) -> "Statistics":
        """From assignments t of each observation to clusters."""
        number = jnp.sum(t, axis=0)
        mean = jnp.sum(t * xs[:, None], axis=0) / (number + 1e-3)
        return cls(number, mean, jnp.sum(t * (xs[:, None] - mean) ** 2, axis=0))
