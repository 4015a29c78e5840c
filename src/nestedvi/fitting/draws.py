"""Draws from a base with their importance weights for a target.

Values of the target are asked for in pieces of one size, so that one compiled program serves every
number of draws and every base. Bases say their own densities, most of them on the host. The devices
of a mesh have a piece each.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.devices import size_of, spread
from nestedvi.pieces import piece_size, through_pieces

__all__ = ["NO_MASS", "draw_weighted", "log_values", "weigh"]

# A log weight of zero mass as a number that can be multiplied with β = 0.
NO_MASS = -1e30
# So many draws at once, on a CPU.
_PIECE = 512


@eqx.filter_jit
def _values(z: Float[Array, "piece dim"], target: AbstractDensity) -> Float[Array, " piece"]:
    return jax.vmap(target.precomputed().log_gamma)(z)


def log_values(
    target: AbstractDensity, z: Float[Array, "num dim"] | np.ndarray, mesh: Mesh | None = None
) -> np.ndarray:
    """log γ of many particles, on the host; NaN stays NaN."""
    z = np.asarray(z)

    def values(piece: np.ndarray) -> Array:
        if mesh is None:
            return _values(jnp.asarray(piece), target)
        return spread(_values, mesh, "batches", jnp.asarray(piece), target)

    size = piece_size(_PIECE) * size_of(mesh, "batches")
    return through_pieces(values, z, size).astype(np.float64)


def weigh(
    base: AbstractSampleable,
    target: AbstractDensity,
    z: Float[Array, "num dim"] | np.ndarray,
    mesh: Mesh | None = None,
) -> np.ndarray:
    """log γ(z) − log q_1(z) for the normalised base, on the host; a NaN is no mass."""
    log_ratio = log_values(target, z, mesh) - base.log_prob_many(z)
    return np.where(np.isnan(log_ratio), NO_MASS, np.clip(log_ratio, NO_MASS, -NO_MASS))


def draw_weighted(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    num: int,
    mesh: Mesh | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`num` draws from the base and their log ratios."""
    z = np.asarray(base.sample_many(key, num))
    return z, weigh(base, target, z, mesh)
