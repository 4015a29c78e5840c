"""Draws from a base with their importance weights for a target.

Values of the target are asked for in pieces of one size, so that one compiled program serves every
number of draws and every base. Bases say their own densities, most of them on the host.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, in_pieces

__all__ = ["NO_MASS", "draw_weighted", "log_values", "weigh"]

# A log weight of zero mass as a number that can be multiplied with β = 0.
NO_MASS = -1e30
_PIECE = 512


@eqx.filter_jit
def _values(target: AbstractDensity, z: Float[Array, "piece dim"]) -> Float[Array, " piece"]:
    return jax.vmap(target.precomputed().log_gamma)(z)


def log_values(target: AbstractDensity, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
    """log γ of many particles, on the host; NaN stays NaN."""
    z = np.asarray(z)
    parts = [np.asarray(_values(target, jnp.asarray(piece))) for piece in in_pieces(z, _PIECE)]
    return np.concatenate(parts)[: len(z)].astype(np.float64)


def weigh(
    base: AbstractSampleable, target: AbstractDensity, z: Float[Array, "num dim"] | np.ndarray
) -> np.ndarray:
    """log γ(z) − log q_1(z) for the normalised base, on the host; a NaN is no mass."""
    log_ratio = log_values(target, z) - base.log_prob_many(z)
    return np.where(np.isnan(log_ratio), NO_MASS, np.clip(log_ratio, NO_MASS, -NO_MASS))


def draw_weighted(
    key: Key, base: AbstractSampleable, target: AbstractDensity, num: int
) -> tuple[np.ndarray, np.ndarray]:
    """`num` draws from the base and their log ratios."""
    z = np.asarray(base.sample_many(key, num))
    return z, weigh(base, target, z)
