"""Where the mass of a density is: the first run of every way of answering, from a wide base to
particles of the target, in coordinates that suit them; and the errors that say why it ended with
nothing to work on.

Does the density have a finite normaliser? Particles of an improper one never stop spreading.
Random-walk moves along differences of other particles follow any ridge and are as long as the
particles are apart: a flat direction widens by a constant factor a round, for ever; the width of a
proper density settles, however large. Numbers end before that: a flat direction stops where the
density overflows. So a width that settles after it grew without measure must show a density that
falls along it. It is a test for mass that runs away, not a proof that none does. `RunawayError` is
raised here and nowhere else.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.compilation import compiled_soon
from nestedvi.densities.affine import Pullback, diagonal_map, in_units_of
from nestedvi.densities.base import AbstractDensity, log_values
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.errors import DensityError
from nestedvi.host import is_on_host
from nestedvi.inference.answer import Request, check_rounding
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.tempering import Plan, Tempering, find_transition, tempering
from nestedvi.smc.transitions import past_transition

__all__ = [
    "Pilot",
    "RunawayError",
    "check_mass",
    "check_width",
    "first_coordinates",
    "in_units_as_far",
    "is_one_point",
    "search",
    "settle",
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
# Particles whose widths are followed; rounds of moves, and those where a width is without measure.
_PARTICLES, _MAX_ROUNDS, _MOST_ROUNDS = 500, 60, 200
# It is growth when a width is this much above what it was _WINDOW rounds ago: four standard errors
# of 500 particles.
_WINDOW, _GROWTH = 3, 1.3
# Widths may shrink first, from where a search left a few particles; that hides growth.
_WARM_UP, _MOVING = 4, 0.05
# A width of a million is without measure: rounds go on for longer, and it is refused unless the
# density falls. A case of doubt after the last round when growth and width are 30.
_BEYOND, _DOUBTFUL = 1e6, 30.0
# The end of single precision, with room for sums.
_END = 1e36
# By how much the log density of particles half as far away is higher, at the least, where it falls;
# half a nat times 1 − ¼ for a Gaussian.
_FALLS = 0.02
# A width beyond any that a search which began with one could have reached.
_ASTRONOMIC = 1e8


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
    return Pullback(request.density, diagonal_map(centre, scale))


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
    log_gamma = log_values(request.density, draws.astype(jnp.result_type(float)))
    log_gamma = np.where(np.isfinite(log_gamma), log_gamma, -np.inf)
    best = draws[np.argsort(log_gamma)[-_PRIOR_DRAWS // 10 :]]
    if not np.isfinite(log_gamma.max()):
        return centre, scale
    likely_centre, likely_scale = _place(best)
    if not np.any(scale > _FAR * likely_scale):
        return centre, scale
    return likely_centre, np.minimum(scale, likely_scale)


def check_mass(any_finite: bool, z: Float[np.ndarray, "particles dim"], has_prior: bool) -> None:
    """Raises `DensityError` if no particle ended at mass, or all of them on one point."""
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
        _refuse_point(z)


def _refuse_point(z: Float[np.ndarray, "particles dim"]) -> NoReturn:
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
    return Pullback(target.density, diagonal_map(shift, unit * far))


class Pilot(NamedTuple):
    """The target in the coordinates to work in, and a first adaptive run to it."""

    target: Pullback
    run: Tempering


def search(key: Key, request: Request, num: int, plan: Plan) -> Pilot:
    """A first run of `num` particles from a wide base; raises where there is no mass, no finite
    normaliser, or all mass on a point.
    """
    key_prior, key_run, key_settle, key_past = split_on_host(key, 4)
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
        return Pilot(target, _past(key_past, request, target, run))
    # A direction far wider than the search began with: once more, in units that fit it.
    wider = in_units_of(target, settled)
    again = _run(key_run, request, wider, num, plan)
    gradients = run.gradients + again.gradients
    again = again._replace(gradients=gradients, values=run.values + again.values)
    return Pilot(wider, _past(key_past, request, wider, again))


def _run(key: Key, request: Request, target: Pullback, num: int, plan: Plan) -> Tempering:
    base, piece = ScaleMixture(request.dim), min(num, request.piece)
    return tempering(key, base, target, plan, num_particles=num, piece=piece, mesh=request.mesh)


def _past(key: Key, request: Request, target: Pullback, run: Tempering) -> Tempering:
    """With particles beyond a first-order transition, where the run shows one."""
    if find_transition(run) is None:
        return run
    base, piece = ScaleMixture(request.dim), min(len(run.z), request.piece)
    return past_transition(key, base, target, run, piece=piece, mesh=request.mesh)


class RunawayError(DensityError):
    """The particles spread without end along one coordinate."""


def _refuse(
    target: Pullback, names: tuple[str, ...], coordinate: int, before: float, after: float
) -> NoReturn:
    """Widths come in the target's coordinates and are said in the user's units."""
    unit = float(np.asarray(target.map.matrix)[coordinate])
    name = names[coordinate] if names else f"coordinate {coordinate}"
    raise RunawayError(
        f"log Z runs away: particles keep spreading along {name} (width {unit * before:.3g}, then"
        f" {unit * after:.3g} and still growing), as they do when a posterior is improper. Give"
        " that direction a proper prior."
    )


def check_width(
    target: Pullback, z: Float[Array, "particles dim"] | np.ndarray, names: tuple[str, ...] = ()
) -> None:
    """Raises `RunawayError` if a search, which began with a width of about one, ended so wide that
    it must have followed a flat direction.
    """
    width = np.nan_to_num(np.std(np.asarray(z, np.float64), axis=0), nan=np.inf)
    worst = int(np.argmax(width))
    if width[worst] > _ASTRONOMIC:
        _refuse(target, names, worst, 1.0, float(width[worst]))


def settle(
    key: Key,
    target: Pullback,
    z: Float[Array, "particles dim"] | np.ndarray,
    names: tuple[str, ...] = (),
) -> tuple[Float[np.ndarray, "particles dim"], int]:
    """500 of the particles after they moved until their widths settled, and how many values of the
    density that took; raises `RunawayError` if they spread without end.

    `z` is in units where the search began with a width of about one. The moves follow the density
    only roughly (all particles move at once, along each other): they are no estimate.
    """
    rng, values, dtype = generator(key), 0, z.dtype
    here = np.asarray(z, np.float64)[np.linspace(0, z.shape[0] - 1, _PARTICLES).astype(int)]
    # Medians, which heavy but proper tails leave alone; from where the particles began, so that
    # drifting away is growth too.
    centre = np.median(here, axis=0)
    first = np.median(np.abs(here - centre), axis=0) + np.finfo(np.float32).tiny
    widths = [first] * _WINDOW
    for done in range(1, _MOST_ROUNDS + 1):
        here, accepted, asked = _round(rng, target, here, dtype)
        width, values = np.median(np.abs(here - centre), axis=0), values + asked
        beyond = width >= _BEYOND
        # Particles that hardly move have widths that say nothing.
        settled = (
            done >= _WARM_UP + _WINDOW
            and accepted > _MOVING
            and bool(np.all((width > 0) & (width < _GROWTH * widths[0])))
        )
        widths = [*widths[1:], width]
        if settled and not (beyond.any() and _is_flat(target, here, centre, dtype)):
            return here, values
        if settled or width.max() > _END or (done >= _MAX_ROUNDS and not beyond.any()):
            break
    last = np.nan_to_num(widths[-1], nan=np.inf)
    if not last.all():
        _refuse_point(here)
    # A search that collapsed onto a point grows as well, back to where it should be: both the
    # growth and the width must be large. A search that was carried far out along a flat direction
    # leaves no room for growth before rounding ends it: there the width says enough.
    doubtful = (np.minimum(last, last / first) > _DOUBTFUL) | (last >= _BEYOND)
    widest = np.where(doubtful, last, 0.0)
    if widest.any():
        worst = int(np.argmax(widest))
        _refuse(target, names, worst, float(first[worst]), float(last[worst]))
    return here, values


def _round(
    rng: np.random.Generator, target: AbstractDensity, z: np.ndarray, dtype: Any
) -> tuple[np.ndarray, float, int]:
    """Random-walk moves along differences of particles: where they are, the share of moves that was
    accepted, and the values that it took. One program where every call waits.
    """
    num, dim = z.shape
    moves = min(max(10, dim // 2), 50)
    pairs = rng.integers(num, size=(moves, 2, num), dtype=np.int32)
    sizes = 2.38 / (2 * dim) ** 0.5 * np.exp(rng.normal(size=(moves, num, 1)) - 0.5)
    noise = (pairs, sizes, np.log(rng.uniform(size=(moves, num))))
    if is_on_host():
        log_gamma, shares = partial(_values_as, dtype, target), np.zeros(moves)
        state = z, _no_nan(log_gamma(z), np)
        for i, one in enumerate(zip(*noise, strict=True)):
            state, shares[i] = _step(state, one, log_gamma, np)
        return state[0], float(np.mean(shares)), (1 + moves) * num
    given = z.astype(dtype), (pairs, *(x.astype(dtype) for x in noise[1:]))
    z, shares = jax.device_get(_walk(target, *jax.device_put(given)))
    return z.astype(np.float64), float(np.mean(shares)), (1 + moves) * num


def _values_as(dtype: Any, target: AbstractDensity, z: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return log_values(target, z.astype(dtype))


def _no_nan(log_density: Any, xp: Any) -> Any:
    return xp.nan_to_num(log_density, nan=-np.inf, neginf=-np.inf)


def _step(state: Any, noise: Any, log_gamma: Callable[[Any], Any], xp: Any) -> Any:
    """One move of all and the share of them that was accepted; `xp` is NumPy or JAX's version."""
    (z, log_z), ((one, other), size, log_uniform) = state, noise
    proposal = z + size * (z[one] - z[other])
    log_new = _no_nan(log_gamma(proposal), xp)
    accept = log_z + log_uniform < log_new
    state = xp.where(accept[:, None], proposal, z), xp.where(accept, log_new, log_z)
    return state, xp.mean(accept, dtype=z.dtype)


@compiled_soon
def _walk(target: AbstractDensity, z: Float[Array, "particles dim"], noise: Any) -> Any:
    log_gamma = jax.vmap(target.precomputed().log_gamma)
    state = z, _no_nan(log_gamma(z), jnp)
    (z, _), shares = jax.lax.scan(partial(_step, log_gamma=log_gamma, xp=jnp), state, noise)
    return z, shares


def _is_flat(target: AbstractDensity, z: np.ndarray, centre: np.ndarray, dtype: Any) -> bool:
    """Whether the density does not fall along the direction in which the particles are widest."""
    away = z - centre
    scale = np.abs(away).max()
    _, _, directions = np.linalg.svd(away / scale, full_matrices=False)
    along = (away @ directions[0])[:, None] * directions[0]
    nearer, further = (_no_nan(_values_as(dtype, target, x), np) for x in (z - along / 2, z))
    gain = nearer - further
    return not np.median(gain[np.isfinite(gain)] if np.isfinite(gain).any() else [0.0]) > _FALLS
