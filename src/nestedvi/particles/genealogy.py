"""Who descends from whom: trajectories and distinct ancestors from the ancestor indices of every
level. It resamples nothing.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from nestedvi._types import Ancestors

__all__ = ["distinct_ancestors", "lineage", "num_distinct", "trajectories"]


def lineage(ancestors: Int[Array, "moves particles"]) -> Int[Array, "levels particles"]:
    """Row k: which particle of level k each final particle descends from. `ancestors[j]` leads from
    level j+2 to level j+1.
    """
    last = jnp.arange(ancestors.shape[1])

    def back(index: Ancestors, parents: Ancestors):
        return parents[index], index

    first, rest = jax.lax.scan(back, last.astype(ancestors.dtype), ancestors, reverse=True)
    return jnp.concatenate([first[None], rest])


def trajectories(zs: PyTree, ancestors: Int[Array, "moves particles"]) -> PyTree:
    """z_{1:K} of every final particle, from the particles of every level (leading axes levels,
    particles).
    """
    index = lineage(ancestors)
    return jax.tree.map(lambda x: jax.vmap(lambda row, pick: row[pick])(x, index), zs)


def distinct_ancestors(ancestors: Int[Array, "moves particles"]) -> Int[Array, " levels"]:
    """How many particles of each level have a descendant at the end."""
    return jax.vmap(lambda row: num_distinct(row, row.shape[0]))(lineage(ancestors))


def num_distinct(index: Ancestors, num: int) -> Int[Array, ""]:
    """How many of 0 … num − 1 occur."""
    return jnp.sum(jnp.zeros(num, bool).at[index].set(True))
