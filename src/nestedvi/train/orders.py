"""Orders of execution: how the levels of one training step are run. All give the same record.

No gradient crosses from one level to the next, so levels may be differentiated inside a scan
(sequential), after it and side by side (two-phase), or side by side with particles of the last step
in place of the scan (`level_parallel`). `gradient` is the one entry. Evaluation never comes here.
"""

from collections.abc import Callable

import jax

from nestedvi._types import Key
from nestedvi.errors import UnknownNameError
from nestedvi.particles.resampling import Particles
from nestedvi.precision import in_full_precision
from nestedvi.sampler.level import Level, outgoing, terms
from nestedvi.sampler.nested import NestedSampler
from nestedvi.sampler.run import level_noise, prepare, scan_levels
from nestedvi.train.bound import bound_gradient
from nestedvi.train.learner import Gradient
from nestedvi.train.level_gradient import first_level_gradient, later_mask, level_gradient
from nestedvi.train.level_parallel import level_parallel, start_population
from nestedvi.train.objective import Objective
from nestedvi.train.population import Population
from nestedvi.train.step_gradient import (
    LaterLevels,
    add,
    later_levels_at_once,
    no_shared_gradient,
    split_shared,
    step_gradient,
)
from nestedvi.train.unequal_levels import unequal_levels_gradient

__all__ = ["ORDERS", "get_order", "gradient", "initial_population", "sequential", "two_phase"]


def sequential(
    key: Key, sampler: NestedSampler, objective: Objective, num_particles: int
) -> Gradient:
    """A scan over levels that differentiates inside its body: memory is flat in K."""
    key_first, key_rest = jax.random.split(key)
    noise = level_noise(key_rest, sampler)
    first = first_level_gradient(key_first, sampler, objective, num_particles)
    prepared, particles = prepare(sampler, first.particles)
    mask = later_mask(prepared, objective)

    def differentiate(carry, level: Level, noise):
        particles, shared = carry
        resample_noise, key_move = noise
        incoming, _, _ = level.resampling(resample_noise, particles)
        result = level_gradient(key_move, incoming, level, prepared.path, mask, objective)
        own, shared_here = split_shared(prepared, result.gradient)
        return (result.particles, add(shared, shared_here)), (own, result.report)

    start = (particles, no_shared_gradient(prepared, mask))
    (last, shared), (own, report) = scan_levels(prepared, differentiate, start, noise)
    later = LaterLevels(own, shared, report)
    return step_gradient(sampler, prepared, objective, first, later, last)


def two_phase(
    key: Key, sampler: NestedSampler, objective: Objective, num_particles: int
) -> Gradient:
    """Samples all levels without gradients, keeps the particles, then differentiates all levels
    side by side.
    """
    key_first, key_rest = jax.random.split(key)
    noise = level_noise(key_rest, sampler)
    first = first_level_gradient(key_first, sampler, objective, num_particles)
    prepared, particles = prepare(sampler, first.particles)
    mask = later_mask(prepared, objective)

    def draw(particles: Particles, level: Level, noise):
        resample_noise, key_move = noise
        incoming, _, _ = level.resampling(resample_noise, particles)
        return outgoing(incoming, terms(key_move, incoming, level, prepared.path)), incoming

    last, incoming = scan_levels(prepared, draw, particles, noise)
    _, keys_move = noise
    later, _ = later_levels_at_once(keys_move, incoming, prepared, mask, objective)
    return step_gradient(sampler, prepared, objective, first, later, last)


ORDERS: dict[str, Callable[..., Gradient]] = {
    "sequential": sequential,
    "two-phase": two_phase,
    "level-parallel": level_parallel,
}


def get_order(name: str) -> Callable[..., Gradient]:
    """An order of execution by name."""
    if name not in ORDERS:
        raise UnknownNameError("order", name, ORDERS)
    return ORDERS[name]


def initial_population(
    key: Key, sampler: NestedSampler, order: str, num_particles: int
) -> Population | None:
    """What an order carries from step to step: nothing, or for level-parallel the particles of
    every level but the last.
    """
    if get_order(order) is not level_parallel:
        return None
    return start_population(key, sampler, num_particles)


@in_full_precision
def gradient(
    key: Key,
    sampler: NestedSampler,
    objective: Objective,
    num_particles: int,
    *,
    order: str = "sequential",
    population: Population | None = None,
) -> Gradient:
    """One training step's gradient. `population` is for level-parallel steps alone: the last step's
    `carry`, or at first `initial_population`.
    """
    step = get_order(order)
    _check_step(sampler, objective, num_particles, order)
    if objective.kind == "bound":
        return bound_gradient(key, sampler, objective, num_particles)
    if not sampler.homogeneous:
        return unequal_levels_gradient(key, sampler, objective, num_particles)
    if step is not level_parallel:
        return step(key, sampler, objective, num_particles)
    if population is None:
        raise ValueError(
            "A level-parallel step starts from the particles of the last one: pass its carry as"
            " `population`, or initial_population(…) at the first step."
        )
    return level_parallel(key, sampler, objective, num_particles, population)


def _check_step(
    sampler: NestedSampler, objective: Objective, num_particles: int, order: str
) -> None:
    if num_particles == 1 and objective.needs_two_particles(sampler):
        raise ValueError(
            "A score-function gradient compares particles with each other; with num_particles = 1"
            " it is zero or pure noise. Use at least 2."
        )
    if order != "sequential" and (objective.kind == "bound" or not sampler.homogeneous):
        why = (
            "A bound runs through all levels at once"
            if objective.kind == "bound"
            else "Levels of unequal kinds run one by one"
        )
        raise ValueError(f"{why}: {order!r} has nothing to rearrange. Use order='sequential'.")
