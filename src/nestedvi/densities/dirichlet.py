"""The symmetric Dirichlet Dir(α · 1) on the simplex, drawn without a rejection loop where α is a
multiple of one half. It has one α for all
coordinates and no other.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable, check_shape

__all__ = ["SymmetricDirichlet", "dirichlet_log_prob"]

# Proportions below this are drawn as it: the logarithm of a zero would make a weight of nothing
# infinite.
TINY = 1e-30

_MOST_SQUARES = 16


def dirichlet_log_prob(lam: Float[Array, " dim"], concentration: Float[Array, " dim"]) -> Scalar:
    """log Dir(λ; a) = log Γ(Σa) − Σ log Γ(a_i) + Σ (a_i − 1) log λ_i."""
    log_norm = jnp.sum(jax.lax.lgamma(concentration)) - jax.lax.lgamma(jnp.sum(concentration))
    return jnp.sum((concentration - 1.0) * jnp.log(jnp.maximum(lam, TINY))) - log_norm


class SymmetricDirichlet(AbstractSampleable):
    """Dir(α, …, α) on the simplex of `dim` proportions; α is given, not learned."""

    alpha: float = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    def __check_init__(self):
        if self.alpha <= 0 or self.dim < 2:
            raise ValueError(
                f"A Dirichlet needs α > 0 and at least two proportions; got α = {self.alpha}, dim ="
                f" {self.dim}."
            )

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        check_shape(z, (self.dim,), "This SymmetricDirichlet")
        return dirichlet_log_prob(z, jnp.full((self.dim,), self.alpha, z.dtype))

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros(())

    @property
    def reparameterised(self) -> bool:
        return True

    def sample(self, key: Key) -> Float[Array, " dim"]:
        squares = 2 * self.alpha
        if squares == int(squares) and squares <= _MOST_SQUARES:
            # Γ(m/2) is half a sum of m squared normals; the usual sampler rejects in a loop, which
            # an accelerator waits for.
            gamma = jnp.sum(jax.random.normal(key, (int(squares), self.dim)) ** 2, axis=0)
        else:
            log_gamma = jax.random.loggamma(key, self.alpha, (self.dim,))
            gamma = jnp.exp(log_gamma - jnp.max(log_gamma))
        return jnp.maximum(gamma / jnp.sum(gamma), TINY)
