"""`method="smc"`: tempered SMC with Hamiltonian moves. It learns nothing, and every learned method
must beat it.

A coarse run and optimisations find the mass, and an adaptive run finds temperatures, metrics and
step sizes; fresh particles follow it, so that Ẑ is unbiased. A tempered run that is over becomes an
answer here, whoever ran it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Float

from nestedvi._types import Key
from nestedvi.densities.affine import Affine, Pullback, whiten
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.low_rank import FULL_DIM
from nestedvi.densities.mixtures import Mixture, ScaleMixture
from nestedvi.fitting.importance import base_at_modes, products_at_modes
from nestedvi.fitting.modes import (
    MOST_MODES,
    NUM_STARTS,
    Modes,
    find_modes,
    search_modes,
    slopes,
)
from nestedvi.fitting.richer import for_moves
from nestedvi.inference.answer import (
    Answer,
    Cost,
    LevelTrace,
    Request,
    Trace,
    exactly,
    first_order,
    missed_modes,
    unfinished,
    weight_curve,
)
from nestedvi.inference.search import search
from nestedvi.particles.weights import beyond_largest, ess, khat, log_Z_hat_stderr
from nestedvi.progress import Stages
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.nested_sampling import NestedPlan, nested_sampling
from nestedvi.smc.tempering import Plan, Tempering, find_transition, follow, tempering
from nestedvi.smc.transitions import MOST_DIMENSIONS

__all__ = [
    "Wide",
    "answer_from_followed",
    "answer_smc",
    "find_wide",
    "look_beyond",
    "num_to_tune",
    "trace_tempering",
]

# A coarse run says where a second base of two widths is to be, in units of what it runs; then
# temperatures are closer together, with more moves while it is hot.
_COARSE = Plan(ess_share=0.5, moves=3, draws=16)
_AROUND = (1.5, 3.0)
# Degrees of freedom of the heaviest tails that it looks for.
_HEAVIEST = 1
_FINE = Plan(ess_share=0.93, moves=4, draws=96, hot=5)
_BEYOND = NestedPlan(draws=64)
_BATCHES = 10
# The metric of a run that is tuned needs as many particles as these for each dimension.
_PER_DIMENSION = 8
# More than this share, and this number, of particles that hardly move at the end are no chance,
# where the density is this much steeper for some of them than it would be for a Gaussian. Where it
# is steeper still a third of the share is enough: few got there.
_STUCK_SHARE, _STUCK, _STEEP, _STEEPER = 0.015, 5, 3.5, 4.5
# The density is so much flatter for some particles than for a Gaussian's: a funnel's mouth. The
# neck of such a funnel may have no particles that could be stuck.
_FLAT = 2.5
# Tails of the particles are heavy above the first number, to which the second adds the noise of one
# coordinate.
_HEAVY, _HEAVY_NOISE = 0.08, 0.25
# Particles beyond this quantile of their largest coordinate are in the tails.
_FAR_OUT = 0.95
# Where importance sampling from the base keeps this share there is nothing left to miss.
_GOOD_BASE = 0.05


class Wide(NamedTuple):
    """What a coarse run and optimisations leave: the target in its coordinates, the run, the modes,
    and values of the target that were asked for to find more of them.
    """

    target: Pullback
    coarse: Tempering
    modes: Modes
    values: int = 0

    @property
    def base(self) -> AbstractSampleable:
        """Draws from as wide as a search begins, from around the coarse run's particles, and from
        the modes, once with light tails and once with heavy ones in every coordinate; each as many.
        """
        dim = self.coarse.z.shape[1]
        around = Affine(ScaleMixture(dim, _AROUND), *_place_and_widths(self.coarse.z))
        parts: list[AbstractSampleable] = [ScaleMixture(dim), around]
        # With as many modes as are kept there are more, and those at hand would take all weight.
        if self.modes.is_complete:
            dtype = jnp.result_type(float)
            heavy = products_at_modes(self.modes, _HEAVIEST, dtype)
            parts += [for_moves(x) for x in (base_at_modes(self.modes, dtype), heavy)]
        return Mixture(tuple(parts), jnp.zeros(len(parts)))


def _place_and_widths(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean, and a root of the covariance; in many dimensions its diagonal."""
    if z.shape[1] > FULL_DIM:
        return z.mean(axis=0), z.std(axis=0)
    return whiten(z)[:2]


def find_wide(keys: Sequence[Key], request: Request, stages: Stages) -> Wide:
    """A coarse run and optimisations that start from its particles, as two stages with a key
    each.
    """
    key_search, key_modes = keys
    stages.begin("search")
    num = num_to_tune(request)
    target, coarse = request.keep("search", lambda: search(key_search, request, num, _COARSE))
    stages.done(log_Z=coarse.log_Z_hat)
    stages.begin("modes")
    modes = request.keep("modes", partial(_modes, key_modes, request, target, coarse))
    return Wide(target, coarse, modes)


def look_beyond(key: Key, request: Request, wide: Wide, stages: Stages) -> Wide:
    """With the modes above particles of nested sampling, which first-order transitions do not stop,
    as one more stage.
    """
    stages.begin("modes beyond")
    modes, values = request.keep("modes beyond", partial(_modes_beyond, key, request, wide))
    return wide._replace(modes=modes, values=values)


def num_to_tune(request: Request) -> int:
    """Particles of a run that is tuned: whole pieces, enough for a metric."""
    piece, total = request.piece, -(-request.num_particles // _BATCHES) * _BATCHES
    return min(total, max(piece, -(-_PER_DIMENSION * request.dim // piece) * piece))


def answer_smc(key: Key, request: Request) -> Answer:
    """`num_particles` in ten batches that follow an adaptive run; the number of levels is found,
    not given.
    """
    request.refuse("num_levels", "it finds its temperatures itself.")
    request.refuse("num_steps", "it learns nothing.")
    *keys, key_tune, key_run, key_beyond, key_again = split_on_host(key, 6)
    num, num_tune, shares = request.num_particles, num_to_tune(request), _shares(request)
    total = -(-num // _BATCHES) * _BATCHES
    with Stages(request.progress) as stages:
        wide = find_wide(keys, request, stages)
        target, coarse = wide.target, wide.coarse
        stages.begin("tuning")
        tune = partial(tempering, plan=_FINE, num_particles=num_tune, **shares)
        tune = partial(tune, step_size=coarse.step_size, target=target)
        run = request.keep("tuning", partial(tune, key_tune, wide.base))
        stages.done(log_Z=run.log_Z_hat)
        if find_transition(run) is not None and request.dim <= MOST_DIMENSIONS:
            wide = look_beyond(key_beyond, request, wide, stages)
            run = request.keep("tuning again", partial(tune, key_again, wide.base))
            stages.done(log_Z=run.log_Z_hat)
        stages.begin("run")
        fresh = partial(follow, key_run, wide.base, target, run.tuned, num_particles=total)
        # One temperature's weights go with the next one's: selection at each keeps them apart.
        fresh = partial(fresh, batches=_BATCHES, draws=_FINE.draws, resample_below=2.0)
        frozen = request.keep("run", partial(fresh, **shares))
        stages.done(log_Z=frozen.log_Z_hat)
        uneven = request.keep("slopes", partial(_uneven, request, target, frozen))
    answer = answer_from_followed(frozen, target, num)
    gradients = (coarse.gradients + run.gradients) * num_tune / num + frozen.gradients
    gradients += wide.modes.gradients / num + 1
    values = (coarse.values + run.values) * num_tune / num + frozen.values + wide.values / num
    return answer._replace(
        diagnosis=(
            *unfinished(run),
            *_too_few(num_tune, request.dim),
            *missed_modes(wide.modes.total_log_mass, answer),
            *(first_order(frozen) or uneven),
        ),
        cost=Cost(0.0, gradients, values),
        drawn_log_w=None,
        weighted=False,
        timings=stages.timings,
    )


def _too_few(num_tune: int, dim: int) -> tuple[str, ...]:
    if num_tune > 2 * dim:
        return ()
    return (
        (
            f"{num_tune} particles are too few for {dim} dimensions: moves cannot be tuned from"
            f" them. Use num_particles of {2 * dim + _BATCHES} or more."
        ),
    )


def _modes(key: Key, request: Request, target: Pullback, coarse: Tempering) -> Modes:
    particles = np.asarray(coarse.z, np.float64)
    with exactly(request, target) as exact:
        return search_modes(generator(key), exact, request.dim, particles)


def _modes_beyond(key: Key, request: Request, wide: Wide) -> tuple[Modes, int]:
    """Half of the climbs begin where the base has least beside what it should have. And the values
    of the target that it took.
    """
    key_run, key_starts = split_on_host(key, 2)
    target, num = wide.target, 2 * request.piece
    run = nested_sampling(
        key_run, wide.base, target, _BEYOND, num_particles=num, **_shares(request)
    )
    rng, order = generator(key_starts), np.argsort(-run.log_ratio)
    half = NUM_STARTS // 2
    rows = np.concatenate([order[:half], rng.integers(num, size=half)])
    with exactly(request, target) as exact:
        more = find_modes(exact, run.z[rows].astype(np.float64), known=wide.modes, most=MOST_MODES)
    gradients = more.gradients + wide.modes.gradients
    return more._replace(gradients=gradients), round(num * run.values)


def _shares(request: Request) -> dict[str, Any]:
    return {"piece": request.piece, "mesh": request.mesh}


def _uneven(request: Request, target: Pullback, run: Tempering) -> tuple[str, ...]:
    """A sentence if no one step suits all particles, or if tails are heavier than moves reach."""
    if run.base_share > _GOOD_BASE:
        return ()
    with exactly(request, target) as exact:
        slope = slopes(exact, np.asarray(run.z, np.float64))
    steep, flat = _steepness(slope @ run.root)
    share = _STUCK_SHARE / 3 if steep > _STEEPER else _STUCK_SHARE
    stuck = run.stuck > share and run.stuck * len(run.z) >= _STUCK
    if (stuck and steep > _STEEP) or flat > _FLAT:
        return (
            "The density is far steeper for some particles than for others, as in a funnel: steps"
            f" that suit some are too long for others ({100 * run.stuck:.1f} % hardly move), and"
            " few or no particles may be where it is steepest. Batches that all miss such a part"
            " agree, and log Z is then too low by more than its standard error says; use"
            " method='auto', which learns where it is, or other coordinates.",
        )
    heavy = _tail_index(run.z) > _HEAVY + _HEAVY_NOISE / run.z.shape[1] ** 0.5
    if heavy and not _base_has_the_tails(run.z, run.log_ratios[-1]):
        return (
            "The particles have heavy tails, which Hamiltonian moves reach slowly and a wide base"
            " seldom: log Z may be too low by more than its standard error says. Use method='auto',"
            " or other coordinates.",
        )
    return ()


def _tail_index(z: Float[np.ndarray, "num dim"]) -> float:
    """The mean over coordinates of the shape of a generalised Pareto tail: zero for exponential
    tails and lighter ones, 1/ν for a Student t with ν degrees of freedom and enough particles.
    """
    away = np.abs(np.asarray(z, np.float64) - np.median(z, axis=0))
    with np.errstate(divide="ignore"):
        return float(np.mean([khat(np.log(one)) for one in away.T]))


def _base_has_the_tails(
    z: Float[np.ndarray, "num dim"], log_ratio: Float[np.ndarray, " num"]
) -> bool:
    """Whether the base has more than its due at the particles that are furthest out in some
    coordinate, by a nat beside the others: its draws reach what moves do not.
    """
    away = np.abs(np.asarray(z, np.float64) - np.median(z, axis=0))
    furthest = np.max(away / np.median(away, axis=0), axis=1)
    out = furthest > np.quantile(furthest, _FAR_OUT)
    return bool(np.median(log_ratio[out]) < np.median(log_ratio[~out]) - 1.0)


def _steepness(slope: Float[np.ndarray, "num dim"]) -> tuple[float, float]:
    """How far the largest and the smallest slopes are from the middle one, on a log scale, in units
    of what they are for a Gaussian in its own metric.
    """
    places = [0.01, 0.5, 0.99]
    with np.errstate(divide="ignore"):
        low, middle, high = np.quantile(np.log(np.linalg.norm(slope, axis=1)), places)
    low_normal, middle_normal, high_normal = 0.5 * np.log(
        2 * scipy.special.gammaincinv(slope.shape[1] / 2, places)
    )
    return (
        float((high - middle) / (high_normal - middle_normal)),
        float((middle - low) / (middle_normal - low_normal)),
    )


def answer_from_followed(run: Tempering, target: Pullback, num_particles: int) -> Answer:
    """Batches that followed a tuned run as one answer in the density's own coordinates."""
    log_Z, stderr = log_Z_hat_stderr(run.log_Z_hats)
    z = target.map(jnp.asarray(run.z[:num_particles]))
    tail = max(beyond_largest(w.reshape(-1)) for w in (run.drawn_log_w, run.log_w))
    return Answer(
        z,
        run.log_w.reshape(-1)[:num_particles],
        float(log_Z),
        # Batches may agree by chance: they are not believed to be closer than their own weights
        # make likely, nor to have seen all of a tail.
        float(np.hypot(max(float(stderr), run.log_Z_variance**0.5), tail)),
        num_batches=len(run.log_w),
        num_ancestors=int(run.origins.sum()),
        drawn_log_w=run.drawn_log_w,
        trace=trace_tempering(run),
        family=run.origin[:num_particles],
    )


def trace_tempering(run: Tempering) -> Trace:
    """Batches of one run, along the same temperatures."""
    return Trace(
        run.log_Z_hats,
        run.origins,
        tuple(_tempered_levels(run, batch) for batch in range(len(run.log_w))),
        weight_curve(run.drawn_log_w),
    )


def _tempered_levels(run: Tempering, batch: int) -> LevelTrace:
    """The weights that lead to temperature k are those of the particles at k − 1."""
    steps, num = np.diff(run.betas, prepend=0.0), run.log_w.shape[1]
    ratios = run.log_ratios.reshape(-1, *run.log_w.shape)[:, batch]
    shares = [
        float(ess(step * log_ratio)) / num for step, log_ratio in zip(steps, ratios, strict=False)
    ]
    return LevelTrace(run.betas, np.array(shares))
