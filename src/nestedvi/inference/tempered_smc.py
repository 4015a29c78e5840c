"""`method="smc"`: tempered SMC with Hamiltonian moves. It learns nothing, and every learned method
must beat it.

A coarse run finds the mass and an adaptive one finds temperatures, metrics and step sizes; fresh
particles follow it, so that Ẑ is unbiased.
"""

from functools import partial

import jax.numpy as jnp

from nestedvi._types import Key
from nestedvi.densities.affine import Affine
from nestedvi.densities.mixtures import Mixture, ScaleMixture
from nestedvi.fitting.directions import whiten
from nestedvi.inference.answer import Answer, Cost, Request
from nestedvi.inference.batches import answer_from_followed
from nestedvi.inference.search import search, unfinished
from nestedvi.inference.stages import Stages
from nestedvi.randomness import split_on_host
from nestedvi.smc.tempering import Plan, Tempering, follow, tempering

__all__ = ["answer_smc"]

# A coarse run says where a second base of two widths is to be, in units of what it runs; then
# temperatures are closer together, with more moves while it is hot.
_COARSE = Plan(ess_share=0.5, moves=3, draws=16)
_AROUND = (1.5, 3.0)
_FINE = Plan(ess_share=0.93, moves=4, draws=96, hot=5)
_BATCHES = 10
# The metric of a run that is tuned needs as many particles as these for each dimension.
_PER_DIMENSION = 8
# More than this share, and this number, of particles that hardly move at the end are no chance:
# where one step suits all it is a few in a thousand, in a funnel one in thirty.
_STUCK_SHARE, _STUCK = 0.015, 5


def answer_smc(key: Key, request: Request) -> Answer:
    """`num_particles` in ten batches that follow an adaptive run; the number of levels is found,
    not given.
    """
    request.refuse("num_levels", "it finds its temperatures itself.")
    request.refuse("num_steps", "it learns nothing.")
    key_search, key_tune, key_run = split_on_host(key, 3)
    dim, num, piece, mesh = request.dim, request.num_particles, request.piece, request.mesh
    total = -(-num // _BATCHES) * _BATCHES
    num_tune = min(total, max(piece, -(-_PER_DIMENSION * dim // piece) * piece))
    with Stages(request.progress) as stages:
        stages.begin("search")
        target, coarse = request.keep(
            "search", lambda: search(key_search, request, num_tune, _COARSE)
        )
        stages.done(log_Z=coarse.log_Z_hat)
        mean, root, _ = whiten(coarse.z)
        around = Affine(ScaleMixture(dim, _AROUND), mean, root)
        base = Mixture((ScaleMixture(dim), around), jnp.zeros(2))
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
    answer = answer_from_followed(frozen, target, num)
    gradients = (coarse.gradients + run.gradients) * num_tune / num + frozen.gradients
    values = (coarse.values + run.values) * num_tune / num + frozen.values
    return answer._replace(
        # Batches may agree by chance: they are not believed to be closer than their own weights
        # make likely.
        log_Z_stderr=max(answer.log_Z_stderr, frozen.log_Z_variance**0.5),
        diagnosis=(*unfinished(run), *_too_few(num_tune, dim), *_stalled(frozen)),
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


def _stalled(run: Tempering) -> tuple[str, ...]:
    if run.stuck <= _STUCK_SHARE or run.stuck * len(run.z) < _STUCK:
        return ()
    return (
        (
            f"{100 * run.stuck:.1f} % of the particles hardly move: steps that suit the others are"
            " too long where those are, as in a funnel's neck. Batches that all miss such a part"
            " agree, and log Z is then too low by more than its standard error says; use"
            " method='auto', which learns where it is, or other coordinates."
        ),
    )
