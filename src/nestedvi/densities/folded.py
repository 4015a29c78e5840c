"""A density that is symmetric under a change of labels, on one ordering of the labels only."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key, Particle, Scalar
from nestedvi.densities.base import AbstractSampleable

__all__ = ["Folded"]


class Folded(AbstractSampleable):
    """`copies` times the density where `fold(z)` is z, and zero elsewhere.

    `fold` maps a particle to the one of its `copies` equivalent ones that stands for all of them
    (sorted, say). The density must be the same for all of them; then log Z is what it was.
    """

    density: AbstractSampleable
    fold: Callable[[Particle], Particle]
    copies: int = eqx.field(static=True)

    def log_gamma(self, z: Particle) -> Scalar:
        same = jax.tree.map(lambda a, b: jnp.all(a == b), self.fold(z), z)
        kept = jax.tree.reduce(jnp.logical_and, same)
        return jnp.where(kept, self.density.log_gamma(z) + np.log(self.copies), -jnp.inf)

    @property
    def log_Z(self) -> Scalar:
        return self.density.log_Z

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Particle:
        return self.fold(self.density.sample(key))
