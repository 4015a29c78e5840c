"""Draws from a base with their importance weights for a target."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Key, LogWeights
from nestedvi.densities.base import AbstractDensity, AbstractSampleable

__all__ = ["draw_weighted", "log_ratios", "weigh"]

# A log weight of zero mass as a number that can be multiplied with β = 0.
_NO_MASS = -1e30


def log_ratios(
    base: AbstractSampleable, target: AbstractDensity, z: Float[Array, "particles dim"]
) -> LogWeights:
    """log γ(z) − log q_1(z) for the normalised base; a NaN is no mass."""
    log_ratio = jax.vmap(lambda z: target.log_gamma(z) - (base.log_gamma(z) - base.log_Z))(z)
    return jnp.where(jnp.isnan(log_ratio), _NO_MASS, jnp.clip(log_ratio, _NO_MASS, -_NO_MASS))


@eqx.filter_jit
def weigh(
    base: AbstractSampleable, target: AbstractDensity, z: Float[Array, "particles dim"]
) -> LogWeights:
    """`log_ratios`, compiled."""
    return log_ratios(base.precomputed(), target.precomputed(), z)


def draw_weighted(
    key: Key, base: AbstractSampleable, target: AbstractDensity, num: int
) -> tuple[Float[Array, "num dim"], LogWeights]:
    """`num` draws from the base and their log ratios."""
    z = base.sample_many(key, num)
    return z, weigh(base, target, z)
