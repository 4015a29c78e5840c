"""Kernels on finite spaces: draws carry no gradient, so they always come with a score term."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Particle, Scalar
from nestedvi.kernels.base import AbstractKernel, Context

__all__ = ["CategoricalKernel", "DistributionKernel"]


class CategoricalKernel(AbstractKernel):
    """q(z' | z) = softmax(logits[z])_{z'} on {0 … n-1}."""

    logits: Float[Array, "states states"]

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key, z: Int[Array, ""], context: Context) -> Int[Array, ""]:
        return jax.random.categorical(key, self.logits[z])

    def log_prob(self, z_new: Int[Array, ""], z: Int[Array, ""], context: Context) -> Scalar:
        return jax.nn.log_softmax(self.logits[z])[z_new]

    def log_prob_score(self, z_new: Int[Array, ""], z: Int[Array, ""], context: Context) -> Scalar:
        return self.log_prob(z_new, z, context)


class DistributionKernel(AbstractKernel):
    """q(z' | z) as any NumPyro distribution that a network makes from z and the level's context.

    `network(z, context)` returns the distribution. Pass `reparameterised=False` for discrete
    distributions and for continuous ones without pathwise gradients; the score term is then log q
    itself.

    Args:
        network: (z, context) -> a NumPyro distribution over z', for one particle. An `eqx.Module`
            where it has parameters to learn. `context.theta` is θ_k.
        reparameterised: whether draws carry the gradient of the parameters.

    Example:
        ```python
        kernel = nvi.DistributionKernel(
            lambda z, context: dist.Poisson(jnp.exp(z)), reparameterised=False
        )
        kernel.sample(jax.random.key(0), jnp.array(0.5), None)
        ```
    """

    network: Callable[[Particle, Context], Any]
    is_reparameterised: bool = eqx.field(static=True)

    def __init__(self, network: Callable[[Particle, Context], Any], reparameterised: bool):
        self.network, self.is_reparameterised = network, reparameterised

    @property
    def reparameterised(self) -> bool:
        return self.is_reparameterised

    def _distribution(self, z: Particle, context: Context) -> Any:
        distribution = self.network(z, context)
        if self.is_reparameterised and not distribution.has_rsample:
            raise ValueError(
                f"The kernel was declared reparameterised, but {type(distribution).__name__} has no"
                " pathwise gradient. Pass reparameterised=False; its parameters then learn by the"
                " score function."
            )
        return distribution

    def sample(self, key: Key, z: Particle, context: Context) -> Particle:
        z_new = self._distribution(z, context).sample(key)
        return z_new if self.is_reparameterised else jax.lax.stop_gradient(z_new)

    def log_prob(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return jnp.sum(self._distribution(z, context).log_prob(z_new))

    def log_prob_score(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return jnp.zeros(()) if self.is_reparameterised else self.log_prob(z_new, z, context)
