"""`method="auto"`: find the target, learn a base as simple as it allows, sample from that base.

The base matters more than the moves after it, and it is what is learned, by the first term of the
nested objective. It goes up a ladder. A pilot run and optimisations find the mass. If importance
sampling from a mixture at the modes is good enough, that is the answer (`quick`). A model with
hierarchies is looked at with those in standard units, and if that fails in its own coordinates. If
neither will do, a flexible base is learned in rounds (`flexible`); in many dimensions, where data
cannot feed it, the mixture at the modes is where tempering starts. What is reported comes from a
sampler that is frozen and from fresh draws, so that Ẑ is unbiased.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key
from nestedvi.densities.affine import Pullback
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.low_rank import FULL_DIM
from nestedvi.densities.mixtures import Mixture, ScaleMixture
from nestedvi.errors import DensityError
from nestedvi.fitting.richer import for_moves
from nestedvi.inference.answer import Answer, Request, RoundingError, exactly
from nestedvi.inference.flexible import Start, answer_by_rounds
from nestedvi.inference.quick import QuickBase, answer_by_importance, num_draws, quick_base
from nestedvi.inference.search import RunawayError, first_coordinates, search
from nestedvi.progress import Stages
from nestedvi.randomness import split_on_host
from nestedvi.smc.tempering import Plan, Tempering

__all__ = ["answer_auto"]

# A pilot from a wide base is worth its moves up to this dimension; of so many particles.
_PILOT_DIM, _PILOT_PARTICLES = 64, 500
# The user's own coordinates are gone on with where importance sampling keeps so many times as many
# of its draws as in others, and this share of them, and log Ẑ is not below by more than the last
# number and four errors. Of fewer draws the share is a matter of one or two large weights.
_BETTER, _TELLING, _BELOW = 2.0, 0.01, 0.1
# A trial with a larger k̂ says nothing of what it keeps.
_NO_TAIL = 0.7
_PILOT = Plan(ess_share=0.7, moves=3, extra=1, draws=16)


class _Look(NamedTuple):
    """What the search and the quick way found in some coordinates: an answer where that was good
    enough, and what was asked of the target so far for each particle that is returned.
    """

    request: Request
    target: Pullback
    pilot: Tempering | None
    quick: QuickBase
    answer: Answer | None
    gradients: float
    values: float


def answer_auto(key: Key, request: Request) -> Answer:
    """`num_particles` of ten batches, from the simplest sampler that is good enough.

    What it learns turns with the user's coordinates. Where there are others they come first.
    """
    request.refuse("num_steps", "fitting stops where particles that were held out say.")
    own, other, spent = request, request.other, (0.0, 0.0)
    if other is not None:
        key, key_other = split_on_host(key, 2)
    *keys, key_answer = split_on_host(key, 4)
    with Stages(request.progress) as stages:
        if other is None:
            look = _look(keys, own, stages)
        else:
            look, spent = _look_twice(keys, own, split_on_host(key_other, 3), other, stages)
        if look.answer is None:
            rough = _rough_base(request.dim, look.quick)
            start = Start(look.target, rough, look.pilot, look.quick)
            answer = answer_by_rounds(key_answer, look.request, start, stages)
        else:
            answer = look.answer
    return answer.with_search(*spent)._replace(
        timings=stages.timings, in_other=look.request is not own
    )


def _look_twice(
    keys: Sequence[Key], own: Request, keys_other: Sequence[Key], other: Request, stages: Stages
) -> tuple[_Look, tuple[float, float]]:
    """The better look: the other coordinates come first, and the user's own where those do not do;
    and gradients and values that the one left out took. Where a search fails in one of them only,
    as on the axis of a hierarchy's neck, the other goes on.
    """
    try:
        look = _look(keys_other, other, stages)
    except DensityError:
        # What is wrong with the density is said of the user's own sites.
        return _look(keys, own, stages), (0.0, 0.0)
    # Importance sampling has no levels: where they are asked for it is not the answer.
    is_settled = look.quick.accepted and own.num_levels is not None
    if look.answer is not None or is_settled:
        return look, (0.0, 0.0)
    try:
        more = _look(keys, own, stages)
    except RunawayError:
        raise
    except (DensityError, RoundingError):
        return look, (0.0, 0.0)
    look, left = (more, look) if _is_better(more, look) else (look, more)
    return look, (left.gradients, left.values)


def _is_better(own: _Look, other: _Look) -> bool:
    """Whether the user's own coordinates, looked at second, serve better: importance sampling is
    good enough there and keeps as much, or it keeps much more, and enough to tell. Both estimate
    the same log Z: one that is clearly below the other misses mass, whatever it keeps.
    """
    here, there = own.quick.trial, other.quick.trial
    if here is None or there is None:
        return here is not None
    errors = [4 * np.sqrt((1 / x.share - 1) / num_draws(own.request.dim)) for x in (here, there)]
    if here.log_Z_hat < there.log_Z_hat - _BELOW - sum(errors):
        return False
    if own.answer is not None:
        # Without the neck of a hierarchy draws look good. Where others keep more, those are right.
        return here.share >= there.share or there.khat >= _NO_TAIL
    return here.share > max(_BETTER * there.share, _TELLING)


def _look(keys: Sequence[Key], request: Request, stages: Stages) -> _Look:
    """The search and the quick way."""
    key_pilot, key_quick, key_is = keys
    total = request.num_particles
    num = min(_PILOT_PARTICLES, total)
    stages.begin("search")
    if request.dim <= _PILOT_DIM:
        target, pilot = request.keep("search", lambda: search(key_pilot, request, num, _PILOT))
        stages.done(log_Z=pilot.log_Z_hat)
    else:
        target, pilot = first_coordinates(key_pilot, request), None
    stages.begin("modes")
    with exactly(request, target) as exact:
        quick = request.keep("modes", partial(quick_base, key_quick, exact, request.dim, pilot))
        answer = None
        if quick.accepted and request.num_levels is None:
            stages.begin("importance sampling")
            draws = partial(answer_by_importance, key_is, quick, exact, total, mesh=request.mesh)
            answer = request.keep("importance sampling", draws)
    spent = (0.0, 0.0) if pilot is None else (pilot.gradients, pilot.values)
    gradients, values = (num / total * x for x in spent)
    if answer is not None:
        answer = answer.with_search(gradients, values)
    gradients, values = gradients + quick.gradients / total, values + quick.values / total
    if answer is not None and answer.cost is not None:
        # Its draws count too where it is left out.
        values = answer.cost.values
    return _Look(request, target, pilot, quick, answer, gradients, values)


def _rough_base(dim: int, quick: QuickBase) -> AbstractSampleable:
    """Where the thorough way starts: as wide as a search begins, and as many draws around the
    modes, where some are known. Where a Gaussian was fitted that looks further around, it is that,
    with the modes where there are several.
    """
    trial = quick.trial
    parts: list[AbstractSampleable] = []
    if quick.gaussian is not None:
        parts.append(for_moves(quick.gaussian.as_mixture(jnp.result_type(float))))
    if trial is not None and (not parts or len(trial.base.means) > 1):
        parts.append(for_moves(trial.base))
    if not parts or dim <= FULL_DIM:
        parts.append(ScaleMixture(dim))
    return parts[0] if len(parts) == 1 else Mixture(parts, jnp.zeros(len(parts)))
