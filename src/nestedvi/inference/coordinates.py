"""Where a search begins, and the errors that say why it ended with nothing to work on."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.errors import DensityError
from nestedvi.inference.answer import Request

__all__ = ["check_mass", "first_coordinates", "in_units_of"]

_ROUNDING = 10.0


def first_coordinates(key: Key, request: Request) -> Pullback:
    """The density around the prior's draws and in units of their spread, or around the origin."""
    centre, scale = np.zeros(request.dim), np.ones(request.dim)
    if request.prior is not None:
        draws = np.asarray(request.prior(key, 1000))
        low, centre, high = np.quantile(draws, [0.16, 0.5, 0.84], axis=0)
        scale = np.maximum((high - low) / 2, 1e-6)
    return Pullback(request.density, _float_map(centre, scale))


def _float_map(shift: np.ndarray, scale: np.ndarray) -> AffineMap:
    dtype = jnp.result_type(float)
    return AffineMap(jnp.asarray(shift, dtype), jnp.asarray(scale, dtype))


def in_units_of(
    target: Pullback, z: Float[Array, "particles dim"] | np.ndarray, *, width: float = 1.0
) -> Pullback:
    """The same density in coordinates where these particles are centred and `width` wide."""
    z = np.asarray(z, np.float64)
    shift, unit = (np.asarray(x, np.float64) for x in (target.map.shift, target.map.matrix))
    there = _float_map(shift + unit * z.mean(axis=0), unit * z.std(axis=0) / width)
    return Pullback(target.density, there)


def check_mass(any_finite: bool, z: Float[np.ndarray, "particles dim"], has_prior: bool) -> None:
    """Raises `DensityError` if no particle ended where the density has mass, or all of them on one
    point.
    """
    if not any_finite:
        where = "around draws of the prior" if has_prior else "centred Gaussians of scale 0.3 to 30"
        hint = (
            "Check the data against the model."
            if has_prior
            else "Shift or rescale it so that some of its mass is there."
        )
        raise DensityError(
            f"The log density is NaN or −inf wherever the search looked ({where}). {hint}"
        )
    # Far away, particles on one point still differ by their rounding.
    mean, spread = np.mean(z, axis=0, dtype=np.float64), np.std(z, axis=0, dtype=np.float64)
    least = _ROUNDING * np.finfo(z.dtype).eps * np.abs(mean)
    if not np.all(np.isfinite(mean) & np.isfinite(spread) & (spread > least)):
        raise DensityError(
            "The search ended with all particles on one point (near"
            f" {np.max(np.abs(mean)):.3g}): the density grows without bound there, or its"
            " mass is too narrow to follow. Check its sign and its scale."
        )
