"""An adaptive run turned into temperatures, steps and a metric that adapt no more, so that the Ẑ of
fresh particles is unbiased.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi.compilation import compiled_soon
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.fitting.temperatures import PathPotential, learn_betas
from nestedvi.kernels.hmc import Hamiltonian
from nestedvi.particles.resampling import Resampling
from nestedvi.paths.annealing import Annealing
from nestedvi.paths.schedules import AbstractSchedule, LearnedSchedule
from nestedvi.sampler.nested import NestedSampler, Stacked
from nestedvi.smc.tempering import MAX_LEVELS, Tempering, Tuned

__all__ = ["GOOD_BASE", "LEAPS", "as_sampler", "freeze", "spread_betas"]

LEAPS = 10
# Importance sampling from a base that keeps this share of its draws is as good as going in steps.
GOOD_BASE = 0.6
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


def freeze(run: Tempering, num_levels: int, *, in_steps: bool = False) -> Tuned:
    """`num_levels` temperatures learned from an adaptive run's particles, with its metric, its
    steps and a move at each but the first.

    Draws from the base are weighted for the first density and thinned. A base that is nearly the
    target needs no temperatures: all densities are then the target, and Ẑ comes from the many
    draws. From any other, and `in_steps` from any, it goes in small steps, since the ESS of one
    large step does not see what the base draws too seldom or too wide; moves in between mend that.
    The run's own temperatures, spread evenly, are where learning starts.
    """
    visited, dtype = run.betas, run.z.dtype
    if float(run.base_share) > GOOD_BASE and not in_steps:
        betas = np.ones(num_levels)
    else:
        schedule = LearnedSchedule(
            num_levels + 1, jnp.asarray(spread_betas(visited, num_levels), dtype)
        )
        if run.z.shape[0] >= _ENOUGH:
            schedule = learn_betas(schedule, _potential(run))
        betas = np.asarray(schedule.betas(), np.float64)[1:]
    sizes = np.interp(betas, visited, run.tuned.step_sizes)
    moves = (0, *(1,) * (num_levels - 1))
    return Tuned(betas, moves, sizes, (run.root,) * num_levels)


def as_sampler(base: AbstractSampleable, target: AbstractDensity, tuned: Tuned) -> NestedSampler:
    """What `follow` runs along, as a nested sampler: annealing with Hamiltonian moves."""
    dtype, num = jnp.result_type(float), len(tuned.betas) - 1
    moves = Hamiltonian(
        jnp.asarray(tuned.step_sizes[1:], dtype),
        jax.tree.map(
            lambda x: jnp.asarray(np.broadcast_to(x, (num, *x.shape)), dtype), tuned.roots[-1]
        ),
        LEAPS,
    )
    path = Annealing(base, target, _Betas(jnp.asarray(tuned.betas, dtype)))
    return NestedSampler(base, path, Stacked(moves), Resampling("systematic", when=0.5))


def _potential(run: Tempering) -> PathPotential:
    """Of one shape for any number of temperatures, so that learning is compiled once."""
    rest, dtype = MAX_LEVELS - run.num_levels, run.z.dtype
    nodes = np.concatenate([[0.0], run.betas, np.full(rest, np.inf)])
    log_ratios = np.pad(run.log_ratios, ((0, rest), (0, 0)))
    return _make_potential(jnp.asarray(nodes, dtype), jnp.asarray(log_ratios, dtype))


@compiled_soon
def _make_potential(nodes: Array, log_ratios: Array) -> PathPotential:
    return PathPotential(nodes, log_ratios)


def spread_betas(visited: np.ndarray, num_levels: int) -> np.ndarray:
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
