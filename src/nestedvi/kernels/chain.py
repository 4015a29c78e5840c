"""Several transitions in a row as one transition: no density in between, gradients flow through the
whole chain.

One level with a chain is how methods with a single bound on the final weight (SVI, IWAE, RWS) are
written.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi._types import Key, Particle
from nestedvi.kernels.base import AbstractTransition, Context, Scores, check_stacked

__all__ = ["Chain"]


class Chain(AbstractTransition):
    """`num` transitions of one class, stacked; log q and log r are sums over the chain."""

    links: AbstractTransition

    def __check_init__(self):
        check_stacked(self.links, "Chain", "A chain of one transition is that transition")

    @property
    def num(self) -> int:
        return jax.tree.leaves(eqx.filter(self.links, eqx.is_array))[0].shape[0]

    def _scan(self, body, start, extras, reverse: bool = False) -> Any:
        arrays, static = eqx.partition(self.links, eqx.is_array)

        def step(carry, inputs):
            link, extra = inputs
            return body(carry, eqx.combine(link, static), extra)

        return jax.lax.scan(step, start, (arrays, extras), reverse=reverse)

    def move(self, key: Key, z_prev: Particle, context: Context) -> tuple[Particle, Any]:
        def body(z, link, key_link):
            z_next, aux = link.move(key_link, z, context)
            return z_next, (z, z_next, aux)

        return self._scan(body, z_prev, jax.random.split(key, self.num))

    def score(self, z: Particle, z_prev: Particle, aux: Any, context: Context) -> Scores:
        def body(total, link, visited):
            start, stop, link_aux = visited
            scores = link.score(stop, start, link_aux, context)
            return jax.tree.map(jnp.add, total, scores), None

        dtype = jnp.result_type(
            *[x for x in jax.tree.leaves(aux) if eqx.is_inexact_array(x)] or [float]
        )
        zero = jnp.zeros((), dtype)
        return self._scan(body, Scores(zero, zero, zero), aux)[0]

    def reverse_move(self, key: Key, z: Particle, context: Context) -> tuple[Particle, Any]:
        def body(z, link, key_link):
            z_prev, aux = link.reverse_move(key_link, z, context)
            return z_prev, (z_prev, z, aux)

        return self._scan(body, z, jax.random.split(key, self.num), reverse=True)

    def groups(self) -> PyTree:
        return eqx.tree_at(lambda chain: chain.links, self, self.links.groups())

    @property
    def reparameterised(self) -> bool:
        return self.links.reparameterised

    @property
    def holdable(self) -> bool:
        return self.links.holdable
