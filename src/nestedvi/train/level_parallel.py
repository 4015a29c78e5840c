"""Level-parallel training: every level advances at once, from the particles of the step before.

For levels k = 2 … K side by side, with particles that left level k-1 at the last step:

    w_{k-1} ← w_{k-1} γ_{k-1}(z_{k-1}; θ now) / γ_{k-1}(z_{k-1}; θ of the last step)
    resample, and take the gradient of level k
    keep what leaves level k for level k+1 of the next step

The time of a step is flat in K on an accelerator. Particles of several steps are mixed, so a path
that keeps a table of one step's first-level particles is refused.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi._types import Key
from nestedvi.devices import num_along
from nestedvi.particles.resampling import Particles, Resampling
from nestedvi.paths.base import AbstractPath, at_level, needs_table
from nestedvi.sampler.nested import NestedSampler
from nestedvi.sampler.run import level_noise, run
from nestedvi.train.learner import Gradient
from nestedvi.train.level_gradient import first_level_gradient, later_mask
from nestedvi.train.levels_over_devices import level_parallel_over_devices
from nestedvi.train.objective import Objective
from nestedvi.train.population import Population, reweight
from nestedvi.train.step_gradient import later_levels_at_once, step_gradient

__all__ = ["level_parallel", "start_population"]


def start_population(key: Key, sampler: NestedSampler, num_particles: int) -> Population:
    """The population before the first step, from one run."""
    if not sampler.homogeneous:
        raise ValueError(
            "Level-parallel training runs all levels side by side, so they must be of one kind; use"
            " 'sequential'."
        )
    if needs_table(sampler.path):
        raise ValueError(
            "Level-parallel training mixes particles of several steps, and this path keeps a table"
            " of the first-level particles of one step; use 'sequential' or 'two-phase'."
        )
    history = run(key, sampler, num_particles, history=True).history
    return Population(_all_but_last(history), eqx.filter(sampler.path, eqx.is_array))


def level_parallel(
    key: Key,
    sampler: NestedSampler,
    objective: Objective,
    num_particles: int,
    population: Population,
) -> Gradient:
    """One step advances every level from the previous step's particles, then shifts them up by
    one. Where the mesh in the context has an axis of levels, they are laid out along it.
    """
    if num_along("levels") > 1:
        return level_parallel_over_devices(key, sampler, objective, num_particles, population)
    key_first, key_rest = jax.random.split(key)
    resample_noise, keys_move = level_noise(key_rest, sampler)
    first = first_level_gradient(key_first, sampler, objective, num_particles)
    mask, rule = later_mask(sampler, objective), sampler.resampling
    assert isinstance(rule, Resampling)  # Levels of one kind share it.

    def resample(noise, particles):
        incoming, _, _ = rule(noise, particles)
        return incoming

    incoming = jax.vmap(resample)(resample_noise, _reweighted(population, sampler.path))
    later, out = later_levels_at_once(keys_move, incoming, sampler, mask, objective)
    last = jax.tree.map(lambda x: x[-1], out)
    shifted = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs[:-1]]), first.particles, out)
    carry = Population(shifted, eqx.filter(sampler.path, eqx.is_array))
    return step_gradient(sampler, sampler, objective, first, later, last, carry)


def _reweighted(population: Population, path: AbstractPath) -> Particles:
    """The population, properly weighted for the γ_k of now."""
    old_path = population.old_path(path)
    thetas, static = eqx.partition(_all_but_last(path.thetas()), eqx.is_array)
    old_thetas = eqx.filter(_all_but_last(old_path.thetas()), eqx.is_array)

    def one_level(particles: Particles, old_theta: PyTree, theta: PyTree) -> Particles:
        whole = (eqx.combine(x, static) for x in (old_theta, theta))
        return reweight(particles, old_path, path, *whole)

    return jax.vmap(one_level)(population.particles, old_thetas, thetas)


def _all_but_last(tree: PyTree) -> PyTree:
    return at_level(tree, slice(None, -1))
