"""`method="smc"`: tempered SMC with Hamiltonian moves. It learns nothing, and every learned method
must beat it.

A coarse run and optimisations find the mass, and an adaptive run finds temperatures, metrics and
step sizes; fresh particles follow it, so that Ẑ is unbiased. A tempered run that is over becomes an
answer here, whoever ran it.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Float

from nestedvi._types import Key
from nestedvi.densities.affine import Affine, Pullback, whiten
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.mixtures import Mixture, ScaleMixture
from nestedvi.fitting.importance import base_at_modes, products_at_modes
from nestedvi.fitting.modes import Modes, search_modes, slopes
from nestedvi.inference.answer import (
    Answer,
    Cost,
    LevelTrace,
    Request,
    Trace,
    exactly,
    weight_curve,
)
from nestedvi.inference.search import search
from nestedvi.particles.weights import ess, khat, log_Z_hat_stderr
from nestedvi.progress import Stages
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.tempering import MAX_LEVELS, Plan, Tempering, follow, tempering

__all__ = ["answer_from_followed", "answer_smc", "missed_modes", "trace_tempering", "unfinished"]

# A coarse run says where a second base of two widths is to be, in units of what it runs; then
# temperatures are closer together, with more moves while it is hot.
_COARSE = Plan(ess_share=0.5, moves=3, draws=16)
_AROUND = (1.5, 3.0)
# Degrees of freedom of the heaviest tails that it looks for.
_HEAVIEST = 1
_FINE = Plan(ess_share=0.93, moves=4, draws=96, hot=5)
_BATCHES = 10
# The metric of a run that is tuned needs as many particles as these for each dimension.
_PER_DIMENSION = 8
# More than this share, and this number, of particles that hardly move at the end are no chance,
# where the density is this much steeper for some of them than it would be for a Gaussian.
_STUCK_SHARE, _STUCK, _STEEP = 0.015, 5, 3.5
# The density is so much flatter for some particles than for a Gaussian's: a funnel's mouth. The
# neck of such a funnel may have no particles that could be stuck.
_FLAT = 2.5
# Tails of the particles are heavy above the first number, to which the second adds the noise of one
# coordinate.
_HEAVY, _HEAVY_NOISE = 0.08, 0.25
# Where importance sampling from the base keeps this share there is nothing left to miss.
_GOOD_BASE = 0.05
# By how much Laplace's approximation of the modes' mass may exceed log Z: it is one.
_MISSED = 0.4


def answer_smc(key: Key, request: Request) -> Answer:
    """`num_particles` in ten batches that follow an adaptive run; the number of levels is found,
    not given.
    """
    request.refuse("num_levels", "it finds its temperatures itself.")
    request.refuse("num_steps", "it learns nothing.")
    key_search, key_modes, key_tune, key_run = split_on_host(key, 4)
    dim, num, piece, mesh = request.dim, request.num_particles, request.piece, request.mesh
    total = -(-num // _BATCHES) * _BATCHES
    num_tune = min(total, max(piece, -(-_PER_DIMENSION * dim // piece) * piece))
    with Stages(request.progress) as stages:
        stages.begin("search")
        target, coarse = request.keep(
            "search", lambda: search(key_search, request, num_tune, _COARSE)
        )
        stages.done(log_Z=coarse.log_Z_hat)
        stages.begin("modes")
        modes = request.keep("modes", partial(_modes, key_modes, request, target, coarse))
        base = _base(dim, coarse, modes)
        stages.begin("tuning")
        tune = partial(tempering, key_tune, base, target, _FINE, num_particles=num_tune)
        tune = partial(tune, step_size=coarse.step_size, piece=piece, mesh=mesh)
        run = request.keep("tuning", tune)
        stages.done(log_Z=run.log_Z_hat)
        stages.begin("run")
        fresh = partial(follow, key_run, base, target, run.tuned, num_particles=total)
        # One temperature's weights go with the next one's: selection at each keeps them apart.
        fresh = partial(fresh, batches=_BATCHES, draws=_FINE.draws, resample_below=2.0)
        frozen = request.keep("run", partial(fresh, piece=piece, mesh=mesh))
        stages.done(log_Z=frozen.log_Z_hat)
        uneven = request.keep("slopes", partial(_uneven, request, target, frozen))
    answer = answer_from_followed(frozen, target, num)
    answer = answer._replace(
        # Batches may agree by chance: they are not believed to be closer than their own weights
        # make likely.
        log_Z_stderr=max(answer.log_Z_stderr, frozen.log_Z_variance**0.5)
    )
    gradients = (coarse.gradients + run.gradients) * num_tune / num + frozen.gradients
    gradients += modes.gradients / num + 1
    values = (coarse.values + run.values) * num_tune / num + frozen.values
    return answer._replace(
        diagnosis=(
            *unfinished(run),
            *_too_few(num_tune, dim),
            *missed_modes(modes.total_log_mass, answer),
            *uneven,
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


def _base(dim: int, coarse: Tempering, modes: Modes) -> AbstractSampleable:
    """Draws from as wide as a search begins, from around the coarse run's particles, and from the
    modes, once with light tails and once with heavy ones in every coordinate; each as many.
    """
    mean, root, _ = whiten(coarse.z)
    around = Affine(ScaleMixture(dim, _AROUND), mean, root)
    parts: list[AbstractSampleable] = [ScaleMixture(dim), around]
    # With as many modes as are kept there are more, and those at hand would take all weight.
    if modes.is_complete:
        dtype = jnp.result_type(float)
        parts += [base_at_modes(modes, dtype), products_at_modes(modes, _HEAVIEST, dtype)]
    return Mixture(tuple(parts), jnp.zeros(len(parts)))


def _uneven(request: Request, target: Pullback, run: Tempering) -> tuple[str, ...]:
    """A sentence if no one step suits all particles, or if tails are heavier than moves reach."""
    if run.base_share > _GOOD_BASE:
        return ()
    with exactly(request, target) as exact:
        slope = slopes(exact, np.asarray(run.z, np.float64))
    steep, flat = _steepness(slope @ run.root)
    stuck = run.stuck > _STUCK_SHARE and run.stuck * len(run.z) >= _STUCK
    if (stuck and steep > _STEEP) or flat > _FLAT:
        return (
            "The density is far steeper for some particles than for others, as in a funnel: steps"
            f" that suit some are too long for others ({100 * run.stuck:.1f} % hardly move), and"
            " few or no particles may be where it is steepest. Batches that all miss such a part"
            " agree, and log Z is then too low by more than its standard error says; use"
            " method='auto', which learns where it is, or other coordinates.",
        )
    if _tail_index(run.z) > _HEAVY + _HEAVY_NOISE / run.z.shape[1] ** 0.5:
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
    return Answer(
        z,
        run.log_w.reshape(-1)[:num_particles],
        float(log_Z),
        float(stderr),
        num_batches=len(run.log_w),
        num_ancestors=int(run.origins.sum()),
        drawn_log_w=run.drawn_log_w,
        trace=trace_tempering(run),
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
