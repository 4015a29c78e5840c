"""The first run of every way of answering: from a wide base to particles of the target, in
coordinates that suit them; and the errors that say why it ended with nothing to work on.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.base import AbstractDensity
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.errors import DensityError
from nestedvi.inference.answer import Answer, Request
from nestedvi.inference.exact import check_rounding
from nestedvi.inference.runaway import check_width, settle
from nestedvi.randomness import split_on_host
from nestedvi.smc.tempering import MAX_LEVELS, Plan, Tempering, tempering

__all__ = [
    "Pilot",
    "check_mass",
    "first_coordinates",
    "in_units_as_far",
    "in_units_of",
    "is_one_point",
    "missed_modes",
    "search",
    "unfinished",
]

_ROUNDING = 10.0
_PRIOR_DRAWS, _LEAST_UNIT = 1000, 1e-6
# Units above this, or 90 % of the draws over so many times the range of the middle fifth (6.5 for
# a Gaussian, 19 for a Cauchy), are looked at twice.
_LARGE, _HEAVY = 1e3, 100.0
# The tenth where the density is highest is up to ten times narrower by that alone.
_FAR = 100.0
# A point so far out is where a density wider than the search carried particles to; so many times
# units are made larger.
_FAR_OUT, _WIDER = 1e3, 8
# By how much Laplace's approximation of the modes' mass may exceed log Z: it is one.
_MISSED = 0.4


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


class Pilot(NamedTuple):
    """The target in the coordinates to work in, and a first adaptive run to it."""

    target: Pullback
    run: Tempering


def search(key: Key, request: Request, num: int, plan: Plan) -> Pilot:
    """A first run of `num` particles from a wide base; raises where there is no mass, no finite
    normaliser, or all mass on a point.
    """
    key_prior, key_run, key_settle = split_on_host(key, 3)
    target = first_coordinates(key_prior, request)
    run = _run(key_run, request, target, num, plan)
    for _ in range(_WIDER):
        z = np.asarray(run.z)
        if not is_one_point(z) or not _FAR_OUT < np.max(np.abs(z)) < np.inf:
            break
        # The draw that was furthest out has won all weight and was carried on from there: to such a
        # density all draws are one point, and only larger units tell.
        target = in_units_as_far(target, z)
        run = _run(key_run, request, target, num, plan)
    check_width(target, run.z, request.names)
    any_finite = bool(np.any(run.log_ratios[-1] > -1e29))
    has_prior = request.prior is not None
    check_mass(any_finite, np.asarray(run.z), has_prior)
    check_rounding(request, np.asarray(target.map(jnp.asarray(run.z))))
    settled, values = settle(key_settle, target, run.z, request.names)
    run = run._replace(values=run.values + values / num)
    if not np.any(settled.std(axis=0) > 2 * np.asarray(run.z).std(axis=0)):
        return Pilot(target, run)
    # A direction far wider than the search began with: once more, in units that fit it.
    wider = in_units_of(target, settled)
    again = _run(key_run, request, wider, num, plan)
    gradients = run.gradients + again.gradients
    return Pilot(wider, again._replace(gradients=gradients, values=run.values + again.values))


def _run(key: Key, request: Request, target: Pullback, num: int, plan: Plan) -> Tempering:
    base, piece = ScaleMixture(request.dim), min(num, request.piece)
    return tempering(key, base, target, plan, num_particles=num, piece=piece, mesh=request.mesh)


def unfinished(run: Tempering) -> tuple[str, ...]:
    """A sentence if a run did not reach the target."""
    if float(run.beta) < 1:
        return (
            f"Tempering stopped at β = {float(run.beta):.3f} of 1 after {MAX_LEVELS} temperatures:"
            " the particles are not the target's.",
        )
    return ()


def missed_modes(log_mass: float, answer: Answer) -> tuple[str, ...]:
    """A mode that climbs found and particles did not has more mass than all that they report."""
    gap = log_mass - answer.log_Z
    if gap <= max(_MISSED, 6 * answer.log_Z_stderr):
        return ()
    return (
        f"Modes that optimisation found have, by Laplace's approximation, e^{gap:.1f} times the"
        " mass that the particles account for: they miss a narrow mode, and log Z is too low.",
    )
