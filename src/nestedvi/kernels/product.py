"""Kernels made of kernels: products that mix reparameterised and discrete parts, and extensions of
a growing particle. They refuse to have parameters beside those of their parts.
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp

from nestedvi._types import Key, Particle, Scalar
from nestedvi.kernels.base import AbstractKernel, Context

__all__ = ["Append", "Field", "NextState", "ProductKernel"]


class ProductKernel(AbstractKernel):
    """q(z' | z) = Π_n q_n(z'_n | z, z'_{earlier}) for particles that are dictionaries.

    Parts are drawn in the order given. Part n sees a dictionary of the incoming particle, in which
    the fields drawn before it carry their new values, so a continuous part may depend on a discrete
    one of the same move.

    Args:
        parts: a kernel for each field of the particle, a dictionary, in the order in which they are
            drawn.

    Example:
        ```python
        choose = nvi.DistributionKernel(
            lambda z, context: dist.Categorical(logits=jnp.array([0.0, z["x"]])),
            reparameterised=False,
        )
        move = nvi.DistributionKernel(
            lambda z, context: dist.Normal(1.0 * z["c"], 1.0), reparameterised=True
        )
        kernel = nvi.ProductKernel({"c": choose, "x": move})
        kernel.sample(jax.random.key(0), {"c": jnp.array(0), "x": jnp.array(0.3)}, None)
        ```
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parts: tuple[AbstractKernel, ...]

    def __init__(self, parts: Mapping[str, AbstractKernel]):
        if not parts:
            raise ValueError("A product kernel needs at least one part.")
        # Not a dict: JAX sorts a dict's keys, and here the order is part of the density.
        self.names, self.parts = tuple(parts.keys()), tuple(parts.values())

    @property
    def reparameterised(self) -> bool:
        return all(part.reparameterised for part in self.parts)

    def sample(self, key: Key, z: Particle, context: Context) -> Particle:
        seen, new = dict(z), {}
        keys = jax.random.split(key, len(self.parts))
        for key_part, name, part in zip(keys, self.names, self.parts, strict=True):
            new[name] = seen[name] = part.sample(key_part, seen, context)
        return new

    def _sum(self, method: str, z_new: Particle, z: Particle, context: Context) -> Scalar:
        seen, total = dict(z), jnp.zeros(())
        for name, part in zip(self.names, self.parts, strict=True):
            total = total + getattr(part, method)(z_new[name], seen, context)
            seen[name] = z_new[name]
        return total

    def log_prob(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return self._sum("log_prob", z_new, z, context)

    def log_prob_score(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return self._sum("log_prob_score", z_new, z, context)


class Field(AbstractKernel):
    """Lets a kernel for one field stand in a product: it sees only `z[name]` of the incoming
    dictionary.
    """

    name: str = eqx.field(static=True)
    kernel: AbstractKernel

    @property
    def reparameterised(self) -> bool:
        return self.kernel.reparameterised

    def sample(self, key: Key, z: Particle, context: Context) -> Particle:
        return self.kernel.sample(key, z[self.name], context)

    def log_prob(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return self.kernel.log_prob(z_new, z[self.name], context)

    def log_prob_score(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return self.kernel.log_prob_score(z_new, z[self.name], context)


class Append(AbstractKernel):
    """Extends a growing particle: z_{1:k} = z_{1:k-1} with one more entry drawn by `kernel` given
    the last one.

    Particles are arrays whose leading axis is time. Used without a reverse kernel, γ_k is a density
    on z_{1:k}.
    """

    kernel: AbstractKernel

    @property
    def extends(self) -> bool:
        return True

    @property
    def reparameterised(self) -> bool:
        return self.kernel.reparameterised

    def sample(self, key: Key, z: Particle, context: Context) -> Particle:
        return jnp.concatenate([z, self.kernel.sample(key, z[-1], context)[None]])

    def log_prob(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return self.kernel.log_prob(z_new[-1], z[-1], context)

    def log_prob_score(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return self.kernel.log_prob_score(z_new[-1], z[-1], context)


class NextState(AbstractKernel):
    """z_k ~ kernel(· | η, z_{k-1}) for particles with global variables (`Latent`): replaces the
    field `state`.

    The kernel sees the whole incoming particle and draws a state; everything else is carried along.
    No reverse kernel.
    """

    kernel: AbstractKernel

    @property
    def reparameterised(self) -> bool:
        return self.kernel.reparameterised

    def sample(self, key: Key, z: Particle, context: Context) -> Particle:
        return z._replace(state=self.kernel.sample(key, z, context))

    def log_prob(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return self.kernel.log_prob(z_new.state, z, context)

    def log_prob_score(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return self.kernel.log_prob_score(z_new.state, z, context)
