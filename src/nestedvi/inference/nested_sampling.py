"""`method="nested-sampling"`: nested sampling as an SMC sampler. It learns nothing.

It starts where `smc` does, at the modes, around a coarse run's particles and far away, but goes
along thresholds of the log ratio instead of temperatures, which first-order transitions do not
stop. An adaptive run finds thresholds, metrics and widths. Fresh particles follow it, so that Ẑ is
unbiased.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key
from nestedvi.densities.affine import Pullback
from nestedvi.inference.answer import (
    Answer,
    Cost,
    LevelTrace,
    Request,
    Trace,
    missed_modes,
    weight_curve,
)
from nestedvi.inference.tempered_smc import find_wide, look_beyond, num_to_tune
from nestedvi.particles.weights import log_Z_hat_stderr
from nestedvi.progress import Stages
from nestedvi.randomness import split_on_host
from nestedvi.smc.nested_sampling import (
    MAX_THRESHOLDS,
    NestedPlan,
    NestedRun,
    follow_thresholds,
    nested_sampling,
)

__all__ = ["answer_nested"]

_BATCHES = 10
_FINE = NestedPlan(draws=64)


def answer_nested(key: Key, request: Request) -> Answer:
    """`num_particles` in ten batches that follow an adaptive run; the number of levels is found,
    not given.
    """
    request.refuse("num_levels", "it finds its thresholds itself.")
    request.refuse("num_steps", "it learns nothing.")
    *keys, key_beyond, key_tune, key_run = split_on_host(key, 5)
    num, num_tune = request.num_particles, num_to_tune(request)
    total = -(-num // _BATCHES) * _BATCHES
    shares: dict[str, Any] = {"piece": request.piece, "mesh": request.mesh}
    with Stages(request.progress) as stages:
        wide = look_beyond(key_beyond, request, find_wide(keys, request, stages), stages)
        base, target, coarse, modes = wide.base, wide.target, wide.coarse, wide.modes
        stages.begin("tuning")
        tune = partial(nested_sampling, key_tune, base, target, _FINE, num_particles=total)
        run = request.keep("tuning", partial(tune, **shares))
        stages.done(log_Z=run.log_Z_hat)
        stages.begin("run")
        fresh = partial(follow_thresholds, key_run, base, target, run.tuned, num_particles=total)
        fresh = partial(fresh, batches=_BATCHES, draws=_FINE.draws, **shares)
        frozen = request.keep("run", fresh)
        stages.done(log_Z=frozen.log_Z_hat)
    answer = _answer(frozen, target, num)
    gradients = (coarse.gradients * num_tune + modes.gradients) / num
    values = (coarse.values * num_tune + wide.values) / num + run.values + frozen.values
    return answer._replace(
        diagnosis=(*_unfinished(run), *missed_modes(modes.total_log_mass, answer)),
        cost=Cost(0.0, gradients, values),
        timings=stages.timings,
    )


def _answer(run: NestedRun, target: Pullback, num: int) -> Answer:
    """In the density's own coordinates; weights are equal within a batch."""
    log_Z, stderr = log_Z_hat_stderr(run.log_Z_hats)
    batches = len(run.log_Z_hats)
    levels = tuple(LevelTrace(None, shares) for shares in run.shares.T)
    return Answer(
        np.asarray(target.map(jnp.asarray(run.z[:num]))),
        np.repeat(run.log_Z_hats, len(run.z) // batches)[:num],
        float(log_Z),
        # Batches may agree by chance: they are not believed to be closer than their own weights
        # make likely.
        max(float(stderr), run.log_Z_variance**0.5),
        num_batches=batches,
        num_ancestors=int(run.origins.sum()),
        weighted=False,
        family=run.origin[:num],
        trace=Trace(run.log_Z_hats, run.origins, levels, weight_curve(run.drawn_log_w)),
    )


def _unfinished(run: NestedRun) -> tuple[str, ...]:
    """A sentence if there was mass above the last threshold."""
    if run.num_levels < MAX_THRESHOLDS:
        return ()
    return (
        f"Nested sampling stopped after {MAX_THRESHOLDS} thresholds with more than"
        f" {_FINE.left:.0e} of the mass above the last one: weights are unbounded, or the mass is"
        " far narrower than where the search began. Use method='auto'.",
    )
