"""Where a search begins, and the errors that say why it ended with nothing to work on."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.base import AbstractDensity
from nestedvi.errors import DensityError
from nestedvi.inference.answer import Request

__all__ = [
    "check_mass",
    "first_coordinates",
    "in_units_as_far",
    "in_units_of",
    "is_one_point",
]

_ROUNDING = 10.0
_PRIOR_DRAWS, _LEAST_UNIT = 1000, 1e-6
# Units above this, or 90 % of the draws over so many times the range of the middle fifth (6.5 for
# a Gaussian, 19 for a Cauchy), are looked at twice.
_LARGE, _HEAVY = 1e3, 100.0
# The tenth where the density is highest is up to ten times narrower by that alone.
_FAR = 100.0


def first_coordinates(key: Key, request: Request) -> Pullback:
    """The density around the prior's draws and in units of their spread, or around the origin.

    A vague prior may have most of its mass where no data could have come from: a precision
    ~ Gamma(.01, .01) puts the effects that it governs at 10¹⁴. Where units come out that large, or
    tails that heavy, those draws say place and units that the data make likeliest.
    """
    centre, scale = np.zeros(request.dim), np.ones(request.dim)
    if request.prior is not None:
        draws = np.asarray(request.prior(key, _PRIOR_DRAWS), np.float64)
        centre, scale = _place(draws)
        if _is_vague(draws, centre, scale):
            centre, scale = _likely_place(request, draws, centre, scale)
    return Pullback(request.density, _float_map(centre, scale))


def _place(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median, and half of the distance of the 16 % and 84 % quantiles."""
    low, centre, high = np.quantile(draws, [0.16, 0.5, 0.84], axis=0)
    return centre, np.maximum((high - low) / 2, _LEAST_UNIT)


def _is_vague(draws: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> bool:
    """Whether units are large, or the draws are spread over many orders of magnitude."""
    few, least, most, many = np.quantile(draws, [0.05, 0.4, 0.6, 0.95], axis=0)
    heavy = many - few > _HEAVY * np.maximum(most - least, _LEAST_UNIT)
    return bool(np.any(heavy | (scale > _LARGE) | (np.abs(centre) > _LARGE)))


def _likely_place(
    request: Request, draws: np.ndarray, centre: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of the tenth of the draws where the density is highest; as it was where that is not far from
    the rest, as for a wide prior whose scale is right.
    """
    z = jnp.asarray(draws, jnp.result_type(float))
    log_gamma = np.asarray(_values(request.density, z), np.float64)
    log_gamma = np.where(np.isfinite(log_gamma), log_gamma, -np.inf)
    best = draws[np.argsort(log_gamma)[-_PRIOR_DRAWS // 10 :]]
    if not np.isfinite(log_gamma.max()):
        return centre, scale
    likely_centre, likely_scale = _place(best)
    if not np.any(scale > _FAR * likely_scale):
        return centre, scale
    return likely_centre, np.minimum(scale, likely_scale)


@eqx.filter_jit
def _values(density: AbstractDensity, z: Float[Array, "particles dim"]) -> Array:
    return jax.vmap(density.log_gamma)(z)


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
    if is_one_point(z):
        raise DensityError(
            "The search ended with all particles on one point (near"
            f" {np.max(np.abs(np.mean(z, axis=0, dtype=np.float64))):.3g}): the density grows"
            " without bound there, or its mass is too narrow to follow. Check its sign and its"
            " scale."
        )


def is_one_point(z: Float[np.ndarray, "particles dim"]) -> bool:
    """Whether all particles are on one point, in some coordinate, or not finite."""
    # Far away, particles on one point still differ by their rounding.
    mean, spread = np.mean(z, axis=0, dtype=np.float64), np.std(z, axis=0, dtype=np.float64)
    least = _ROUNDING * np.finfo(z.dtype).eps * np.abs(mean)
    return not np.all(np.isfinite(mean) & np.isfinite(spread) & (spread > least))


def in_units_as_far(target: Pullback, z: Float[np.ndarray, "particles dim"]) -> Pullback:
    """The same density in units as large as particles are far from the origin."""
    far = float(np.max(np.abs(np.mean(z, axis=0, dtype=np.float64))))
    shift, unit = (np.asarray(x, np.float64) for x in (target.map.shift, target.map.matrix))
    return Pullback(target.density, _float_map(shift, unit * far))
