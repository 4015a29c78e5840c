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
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.densities.compound import Mixture
from nestedvi.fitting.base import refit_base
from nestedvi.fitting.temperatures import PathPotential, learn_betas
from nestedvi.inference.answer import Answer, Cost, Request
from nestedvi.inference.batches import answer_from_runs, run_batches
from nestedvi.inference.search import Stages, doubts, search
from nestedvi.kernels.hmc import Hamiltonian
from nestedvi.particles.resampling import Resampling
from nestedvi.particles.weights import log_Z_hat
from nestedvi.paths.annealing import Annealing
from nestedvi.paths.schedules import AbstractSchedule, LearnedSchedule
from nestedvi.sampler.nested import NestedSampler, Stacked
from nestedvi.smc.tempering import Plan, Tempering, tempering

__all__ = ["answer_auto", "freeze"]

_BATCHES = 10
_LEVELS, _LEAPS = 25, 10
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
# Importance sampling from a base that keeps this share of its draws is as good as going in steps.
_GOOD_BASE = 0.6
_LEAST_STEP = 1e-6
# With fewer particles temperatures would be learned from noise.
_ENOUGH = 500


class _Betas(AbstractSchedule):
    """Temperatures as an array, so that other values need no new compilation."""

    values: Float[Array, " levels"]

    @property
    def num_levels(self) -> int:
        return self.values.shape[0]

    def betas(self) -> Float[Array, " levels"]:
        return self.values


def answer_auto(key: Key, request: Request) -> Answer:
    """`num_particles` from ten batches of a sampler with a learned base and `num_levels` − 1
    Hamiltonian moves.

    What it learns turns with the user's coordinates.
    """
    request.refuse("num_steps", "fitting stops where particles that were held out say.")
    keys = jax.random.split(key, 2 * len(_WIDE) + 3)
    num_particles = request.num_particles
    with Stages(request.progress, 2 * len(_WIDE) + 2) as stages:
        located, found = search(keys[0], request, num_particles, _PILOT)
        stages.done(log_Z=found.log_Z_hat)
        # As many as every later run leaves, so that what is compiled for them serves here.
        gradients, values, seen = (
            int(found.gradients),
            float(found.values),
            [found.history[-_ROUND.extra - 1 :]],
        )
        for r, wide in enumerate(_WIDE):
            base = _refit(keys[2 * r + 1], seen, wide)
            stages.done()
            found = tempering(
                keys[2 * r + 2],
                base,
                located,
                _ROUND,
                num_particles=num_particles,
                step_size=found.step_size,
            )
            stages.done(log_Z=found.log_Z_hat)
            gradients, values = gradients + int(found.gradients), values + float(found.values)
            seen = [*seen[-1:], found.history] if r > 0 else [found.history]
        sampler = freeze(base, located, found, request.num_levels or _LEVELS)
        runs = run_batches(
            jax.random.split(keys[-1], _BATCHES), sampler, -(-num_particles // _BATCHES), _DRAWS
        )
        stages.done(log_Z=log_Z_hat(runs.log_Z_hat))
    answer = answer_from_runs(runs, located, num_particles)
    moves = sampler.num_levels - 1
    # A frozen level's weights take two values: of where a move begins and where it ends.
    cost = Cost(gradients, moves * (_LEAPS + 1), values + _DRAWS + 2 * moves)
    said = (*doubts(found), *_restless(float(found.log_Z_hat), answer.log_Z, answer.log_Z_stderr))
    return answer._replace(
        diagnosis=said, sampler=sampler, cost=cost, drawn_log_w=runs.drawn_log_w.reshape(-1)
    )


def freeze(
    base: AbstractSampleable, target: AbstractDensity, found: Tempering, num_levels: int
) -> NestedSampler:
    """A sampler of `num_levels` densities with an adaptive run's metric, its steps, and
    temperatures learned from its particles.

    Draws from the base are weighted for the first density and thinned by `run`. A base that is
    nearly the target needs no temperatures: all densities are then the target, and Ẑ comes from the
    many draws. From any other it goes in small steps, since the ESS of one large step does not see
    what the base draws too seldom or too wide; moves in between mend that. The run's own
    temperatures, spread evenly, are where learning starts.
    """
    num = int(found.num_levels)
    visited, sizes = np.asarray(found.betas[:num], np.float64), np.asarray(found.step_sizes[:num])
    dtype = found.root.dtype
    if float(found.base_share) > _GOOD_BASE:
        betas = np.ones(num_levels)
    else:
        schedule = LearnedSchedule(num_levels + 1, jnp.asarray(_spread(visited, num_levels), dtype))
        if found.z.shape[0] >= _ENOUGH:
            schedule = learn_betas(schedule, _potential(found))
        betas = np.asarray(schedule.betas())[1:]
    sizes = np.interp(betas[1:], visited, sizes)
    moves = Hamiltonian(
        jnp.asarray(sizes, dtype),
        jnp.broadcast_to(found.root, (len(sizes), *found.root.shape)),
        _LEAPS,
    )
    path = Annealing(base, target, _Betas(jnp.asarray(betas, dtype)))
    return NestedSampler(base, path, Stacked(moves), Resampling("systematic", when=0.5))


@jax.jit
def _potential(found: Tempering) -> PathPotential:
    reached = jnp.where(jnp.arange(len(found.betas)) < found.num_levels, found.betas, jnp.inf)
    return PathPotential(jnp.concatenate([jnp.zeros_like(reached[:1]), reached]), found.log_ratios)


def _spread(visited: np.ndarray, num_levels: int) -> np.ndarray:
    """0 and `num_levels` temperatures up to 1, also where the run stopped before it, in even steps
    of an ESS rule's pace.
    """
    at, visited = np.arange(1.0, len(visited) + 1), np.append(visited[:-1], 1.0)
    if len(visited) > 2:
        # The last temperature is cut off at 1: it counts by its length.
        at[-1] = at[-2] + min(1.0, (visited[-1] - visited[-2]) / (visited[-2] - visited[-3]))
    betas = np.interp(at[-1] * np.arange(num_levels + 1) / num_levels, [0.0, *at], [0.0, *visited])
    betas[-1] = 1.0
    if np.min(np.diff(betas)) < _LEAST_STEP:
        # In single precision such steps would be none, and a schedule must rise.
        betas = 0.999 * betas + 0.001 * np.linspace(0, 1, num_levels + 1)
    return betas


def _refit(key: Key, seen: list[Float[Array, "moves particles dim"]], wide: float) -> Mixture:
    """A base from the particles of the last runs; of several runs every so many moves, so that the
    numbers stay the same.
    """
    z = jnp.concatenate([history[i :: len(seen)] for i, history in enumerate(seen)])
    family = min(_FAMILY, -(-z.shape[1] // _FOLDS))
    held = (np.arange(z.shape[1]) // family) % _FOLDS == 0

    def rows(pick):
        return z[:, np.flatnonzero(pick)].reshape(-1, z.shape[2])

    return refit_base(key, rows(~held), rows(held), wide=wide)


def _restless(before: float, log_Z: float, stderr: float) -> tuple[str, ...]:
    """Mass that some runs find and others miss shows in estimates that differ by more than their
    error.
    """
    gap = abs(before - log_Z)
    if gap <= max(6 * stderr, 0.1):
        return ()
    return (
        (
            f"Two runs of the same sampler differ by {gap:.2f} in log Z, much more than the"
            f" standard error {stderr:.2f}: some of the mass is found only now and then. Use more"
            " particles."
        ),
    )
