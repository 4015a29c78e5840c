"""Joint densities a ~ p(a), b ~ k(b | a) of two sampleable parts; levels with exact samples are
made of them. They refuse to be more than two parts: a part may itself be joint.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from nestedvi._types import Key, Particle, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.kernels.base import AbstractKernel, Context

__all__ = ["Joint"]

_NO_CONTEXT = Context(None, None)


class Joint(AbstractSampleable):
    """p(a) k(b | a) on pairs. `flipped` stores the pair as (b, a), so that both sides of a level
    agree on the order.

    ```python
    left = nvi.kernels.Joint(prior, decoder)                  # p(z) p(x | z) on (z, x)
    right = nvi.kernels.Joint(data, encoder, flipped=True)    # p(x) q(z | x) on (z, x)
    ```
    """

    first: AbstractSampleable
    kernel: AbstractKernel
    flipped: bool = eqx.field(static=True, default=False)

    def log_gamma(self, z: Particle) -> Scalar:
        a, b = z[::-1] if self.flipped else z
        return self.first.log_gamma(a) + self.kernel.log_prob(b, a, _NO_CONTEXT)

    @property
    def log_Z(self) -> Scalar:
        return self.first.log_Z

    @property
    def reparameterised(self) -> bool:
        return self.first.reparameterised and self.kernel.reparameterised

    def sample(self, key: Key) -> Particle:
        key_a, key_b = jax.random.split(key)
        a = self.first.sample(key_a)
        if not self.first.reparameterised:
            a = jax.lax.stop_gradient(a)
        return self.complete(key_b, a)

    def complete(self, key: Key, a: Particle) -> Particle:
        """The pair of a given `a`, itself drawn from p(a), with b ~ k(b | a)."""
        b = self.kernel.sample(key, a, _NO_CONTEXT)
        return (b, a) if self.flipped else (a, b)

    def log_score(self, z: Particle) -> Scalar:
        """log q̃: the part of the joint that is drawn without reparameterisation."""
        a, b = z[::-1] if self.flipped else z
        first = (
            jnp.zeros(())
            if self.first.reparameterised
            else self.first.log_gamma(a) - self.first.log_Z
        )
        return first + self.kernel.log_prob_score(b, a, _NO_CONTEXT)
