"""`method="auto"`: find the target, learn a base as simple as it allows, sample from that base.

The base matters more than the moves after it, and it is what is learned, by the first term of the
nested objective. It goes up a ladder. A pilot run and optimisations find the mass. If importance
sampling from a mixture at the modes is good enough, that is the answer (`quick`). If not, a
flexible base is learned in rounds (`flexible`); in many dimensions, where data cannot feed it, the
mixture at the modes is where tempering starts. What is reported comes from a sampler that is frozen
and from fresh draws, so that Ẑ is unbiased.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.mixtures import Mixture, ScaleMixture
from nestedvi.fitting.importance import in_powers_of_two
from nestedvi.inference.answer import Answer, Request, exactly
from nestedvi.inference.flexible import Start, answer_by_rounds
from nestedvi.inference.quick import QuickBase, answer_by_importance, quick_base
from nestedvi.inference.search import first_coordinates, search
from nestedvi.progress import Stages
from nestedvi.randomness import split_on_host
from nestedvi.smc.tempering import Plan

__all__ = ["answer_auto"]

# A pilot from a wide base is worth its moves up to this dimension; of so many particles.
_PILOT_DIM, _PILOT_PARTICLES = 64, 500
_PILOT = Plan(ess_share=0.7, moves=3, extra=1, draws=16)


def answer_auto(key: Key, request: Request) -> Answer:
    """`num_particles` of ten batches, from the simplest sampler that is good enough.

    What it learns turns with the user's coordinates.
    """
    request.refuse("num_steps", "fitting stops where particles that were held out say.")
    key_pilot, key_quick, key_is, key_answer = split_on_host(key, 4)
    with Stages(request.progress) as stages:
        stages.begin("search")
        if request.dim <= _PILOT_DIM:
            num = min(_PILOT_PARTICLES, request.num_particles)
            target, pilot = request.keep("search", lambda: search(key_pilot, request, num, _PILOT))
            stages.done(log_Z=pilot.log_Z_hat)
        else:
            target, pilot = first_coordinates(key_pilot, request), None
        stages.begin("modes")
        with exactly(request, target) as exact:
            base = partial(quick_base, key_quick, exact, request.dim, pilot)
            quick = request.keep("modes", base)
            answer = None
            if quick.accepted and request.num_levels is None:
                stages.begin("importance sampling")
                draws = partial(answer_by_importance, key_is, quick, exact, request.num_particles)
                draws = partial(draws, mesh=request.mesh)
                answer = request.keep("importance sampling", draws)
        if answer is None:
            start = Start(target, _rough_base(request.dim, quick), pilot, quick)
            answer = answer_by_rounds(key_answer, request, start, stages)
        elif pilot is not None:
            share = num / request.num_particles
            answer = answer.with_search(share * pilot.gradients, share * pilot.values)
    return answer._replace(timings=stages.timings)


def _rough_base(dim: int, quick: QuickBase) -> AbstractSampleable:
    """Where the thorough way starts: as wide as a search begins, and half of the draws around the
    modes, where some are known.
    """
    if quick.trial is None:
        return ScaleMixture(dim)
    at_modes = in_powers_of_two(quick.trial.base)
    dtype = jnp.result_type(float)
    at_modes = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, dtype)), at_modes)
    return Mixture((at_modes, ScaleMixture(dim)), jnp.zeros(2))
