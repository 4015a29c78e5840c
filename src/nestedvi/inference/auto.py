"""`method="auto"`: find the target, learn a base, run a short sampler from it.

The base q_1 matters more than the moves after it, and it is what is learned here, by the first term
of the nested objective. A pilot run finds particles; rounds of refitting the base and running from
it turn them into better ones; then everything is frozen and fresh particles give an unbiased Ẑ.
Temperatures start from the last adaptive run's and are learned from its particles.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.mixtures import Mixture
from nestedvi.fitting.base import refit_base
from nestedvi.inference.answer import Answer, Cost, Request
from nestedvi.inference.batches import answer_from_runs, run_batches
from nestedvi.inference.frozen import LEAPS, freeze
from nestedvi.inference.search import search, unfinished
from nestedvi.inference.stages import Stages
from nestedvi.particles.weights import log_Z_hat
from nestedvi.smc.tempering import Plan, tempering

__all__ = ["answer_auto"]

_BATCHES, _LEVELS = 10, 25
# Draws from a base cost one value of the density where a move costs eleven gradients, so there are
# many for each particle.
_DRAWS = 16
_PILOT = Plan(ess_share=0.7, moves=3, extra=2, draws=_DRAWS)
_ROUND = Plan(ess_share=0.6, moves=2, extra=1, draws=_DRAWS)
# The share of the base's draws that look beyond its particles, round by round: first to find mass,
# then to be safe.
_WIDE = (0.3, 0.3, 0.3, 0.2, 0.15)
# Particles are held out in runs of neighbours: after systematic resampling those share ancestors.
_FAMILY, _FOLDS = 20, 7


def answer_auto(key: Key, request: Request) -> Answer:
    """`num_particles` from ten batches of a sampler with a learned base and `num_levels` − 1
    Hamiltonian moves.

    What it learns turns with the user's coordinates.
    """
    request.refuse("num_steps", "fitting stops where particles that were held out say.")
    keys = jax.random.split(key, 2 * len(_WIDE) + 3)
    num = request.num_particles
    with Stages(request.progress, 2 * len(_WIDE) + 2) as stages:
        target, run = search(keys[0], request, num, _PILOT)
        stages.done(log_Z=run.log_Z_hat)
        # As many as every later run leaves, so that what is compiled for them serves here.
        data = [run.history[-_ROUND.extra - 1 :]]
        gradients, values = int(run.gradients), float(run.values)
        for r, wide in enumerate(_WIDE):
            base = _refit(keys[2 * r + 1], data, wide)
            stages.done()
            size = run.step_size
            run = tempering(
                keys[2 * r + 2], base, target, _ROUND, num_particles=num, step_size=size
            )
            stages.done(log_Z=run.log_Z_hat)
            gradients, values = gradients + int(run.gradients), values + float(run.values)
            data = [*data[-1:], run.history] if r > 0 else [run.history]
        sampler = freeze(base, target, run, request.num_levels or _LEVELS)
        batch_keys = jax.random.split(keys[-1], _BATCHES)
        runs = run_batches(batch_keys, sampler, -(-num // _BATCHES), _DRAWS)
        stages.done(log_Z=log_Z_hat(runs.log_Z_hat))
    answer = answer_from_runs(runs, target, num)
    moves = sampler.num_levels - 1
    # A frozen level's weights take two values: of where a move begins and where it ends.
    cost = Cost(gradients, moves * (LEAPS + 1), values + _DRAWS + 2 * moves)
    gap = _disagreement(float(run.log_Z_hat), answer.log_Z, answer.log_Z_stderr)
    return answer._replace(
        diagnosis=(*unfinished(run), *gap),
        sampler=sampler,
        cost=cost,
        drawn_log_w=runs.drawn_log_w.reshape(-1),
    )


def _refit(key: Key, data: list[Float[Array, "moves particles dim"]], wide: float) -> Mixture:
    """A base from the particles of the last runs; of several runs every so many moves, so that the
    numbers stay the same.
    """
    z = jnp.concatenate([history[i :: len(data)] for i, history in enumerate(data)])
    family = min(_FAMILY, -(-z.shape[1] // _FOLDS))
    held = (np.arange(z.shape[1]) // family) % _FOLDS == 0

    def rows(pick):
        return z[:, np.flatnonzero(pick)].reshape(-1, z.shape[2])

    return refit_base(key, rows(~held), rows(held), wide=wide)


def _disagreement(before: float, log_Z: float, stderr: float) -> tuple[str, ...]:
    """Mass that some runs reach and others miss shows in estimates that differ by more than their
    error.
    """
    gap = abs(before - log_Z)
    if gap <= max(6 * stderr, 0.1):
        return ()
    return (
        f"Two runs of the same sampler differ by {gap:.2f} in log Z, much more than the standard"
        f" error {stderr:.2f}: some of the mass is found only now and then. Use more particles.",
    )
