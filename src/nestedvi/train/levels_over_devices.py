"""Level-parallel training with the levels on several devices.

Every device holds its levels' transitions, with the optimiser's state of those, and the particles
that come into them. In a step it

    computes the first level, like every other device                       (nothing is exchanged)
    reweights, resamples and differentiates its own levels                  (nothing is exchanged)
    passes the particles that leave its last level on to the next device    one neighbour exchange
    adds up what levels share, and reports                                  one all-reduce

The all-reduce holds the gradients of the path and of a `Shared` transition, and a few numbers a
level. Parameters of a level never leave their device. Rows of levels that only fill up a device's
share run like the others, and what they give is dropped.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Int, PyTree

from nestedvi._types import Key, PerLevel
from nestedvi.devices import num_along, over_particles
from nestedvi.kernels.base import AbstractTransition
from nestedvi.particles.resampling import Particles, Resampling
from nestedvi.particles.weights import log_Z_hat
from nestedvi.paths.base import AbstractPath, at_level
from nestedvi.sampler.nested import NestedSampler, Shared, level_arrays
from nestedvi.sampler.run import level_noise
from nestedvi.train.learner import Gradient
from nestedvi.train.level_gradient import (
    LevelGradient,
    LevelReport,
    LevelResult,
    first_level_gradient,
    later_mask,
    level_gradient,
)
from nestedvi.train.objective import Objective
from nestedvi.train.population import Population, reweight
from nestedvi.train.step_gradient import (
    LaterLevels,
    StepInfo,
    all_finite,
    assemble,
    defined,
    split_shared,
)

__all__ = ["level_parallel_over_devices"]

_LEVELS = PartitionSpec("levels")


class _Own(NamedTuple):
    """What a device alone has of its levels, one row a level: their numbers from 0 (level 2), their
    transitions (None where all share one), and the particles that come in.
    """

    number: Int[Array, " rows"]
    transition: PyTree
    particles: Particles


class _Row(NamedTuple):
    """What else a level needs. Every device computes it for all levels, and reads its own rows."""

    thetas: PyTree
    old_theta: PyTree
    noise: Any
    key: Key


class _OnAll(NamedTuple):
    """What every device has: the rows of all levels, the path of now and that of the last step, a
    transition that all levels share (or None), and the particles that leave the first level.
    """

    rows: _Row
    path: AbstractPath
    old_path: AbstractPath
    transition: AbstractTransition | None
    first: Particles


class _Summed(NamedTuple):
    """What all devices know after the all-reduce. One row a level but for `shared`."""

    shared: LevelGradient
    thetas: LevelGradient
    finite: PerLevel
    report: LevelReport
    log_Z_hat: PerLevel


def level_parallel_over_devices(
    key: Key,
    sampler: NestedSampler,
    objective: Objective,
    num_particles: int,
    population: Population,
) -> Gradient:
    """`level_parallel`, with the arrays of `sampler` and `population` that have a row a level laid
    out along `levels` of the mesh in the context, and filled up to a number of rows that divides.
    """
    num_rows, num_levels = population.particles.log_w.shape[0], sampler.num_levels
    if num_rows % num_along("levels") or num_rows < num_levels - 1:
        raise ValueError(
            f"{num_rows} rows of levels do not divide by {num_along('levels')} devices; fill the"
            " population and the stacked transitions up, as `nvi.fit` does."
        )
    key_first, key_rest = jax.random.split(key)
    first = first_level_gradient(key_first, sampler, objective, num_particles)
    (transition, *_), _ = level_arrays(sampler)
    own = _Own(jnp.arange(num_rows), transition, population.particles)
    shared = _OnAll(
        _rows(key_rest, sampler, population, num_rows),
        sampler.path,
        population.old_path(sampler.path),
        sampler.transitions.transition if isinstance(sampler.transitions, Shared) else None,
        first.particles,
    )
    arrays, static = eqx.partition(shared, eqx.is_array)
    differentiate = _of_a_row(sampler, objective)

    def own_levels(own: _Own, arrays: PyTree):
        shared, num = eqx.combine(arrays, static), own.number.shape[0]
        rows = jax.tree.map(
            lambda x: jax.lax.dynamic_slice_in_dim(x, own.number[0], num), shared.rows
        )
        result = jax.vmap(differentiate, in_axes=(0, 0, None))(own, rows, shared)
        gradient, of_all = split_shared(sampler, result.gradient)
        total = _sum_over_devices(gradient, of_all, result, own.number, num_rows)
        moved = _one_level_up(shared.first, result.particles, own.number[0] == 0)
        return gradient.transition, moved, total

    transitions, moved, total = jax.shard_map(
        own_levels,
        in_specs=(_LEVELS, PartitionSpec()),
        out_specs=(_LEVELS, _LEVELS, PartitionSpec()),
        axis_names={"levels"},
        # Rejection samplers (gamma, beta) do not pass the check.
        check_vma=False,
    )(own, arrays)
    carry = Population(moved, eqx.filter(sampler.path, eqx.is_array))
    return _step(sampler, objective, first, transitions, total, carry)


def _of_a_row(
    sampler: NestedSampler, objective: Objective
) -> Callable[[_Own, _Row, _OnAll], LevelResult]:
    """The gradient of one level, as a function of what its device has; zero for a row that only
    fills up. Of `sampler` it reads the structure.
    """
    mask, rule, last = later_mask(sampler, objective), sampler.resampling, sampler.num_levels - 2
    assert isinstance(rule, Resampling)  # Levels of one kind share it.
    _, rebuild = level_arrays(sampler)

    def one(own: _Own, row: _Row, shared: _OnAll) -> LevelResult:
        level = rebuild((own.transition, *row.thetas))
        if shared.transition is not None:
            level = level._replace(transition=shared.transition)
        static = eqx.filter(level.theta_prev, eqx.is_array, inverse=True)
        old_theta = eqx.combine(row.old_theta, static)
        particles = reweight(
            own.particles, shared.old_path, shared.path, old_theta, level.theta_prev
        )
        incoming, _, _ = rule(row.noise, particles)
        result = level_gradient(row.key, incoming, level, shared.path, mask, objective)
        gradient = jax.tree.map(lambda g: jnp.where(own.number <= last, g, 0), result.gradient)
        return result._replace(gradient=gradient)

    return one


def _rows(key: Key, sampler: NestedSampler, population: Population, num_rows: int) -> _Row:
    """Randomness is that of training on one device. A row that only fills up has that of the last
    level again.
    """
    chosen = np.minimum(np.arange(num_rows), sampler.num_levels - 2)
    (_, *thetas), _ = level_arrays(sampler)
    old_thetas = at_level(population.old_path(sampler.path).thetas(), slice(None, -1))
    noise, keys = level_noise(key, sampler)
    rows = _Row(thetas, eqx.filter(old_thetas, eqx.is_array), noise, keys)
    return jax.tree.map(lambda x: x[chosen], rows)


def _sum_over_devices(
    own: LevelGradient,
    shared: LevelGradient,
    result: LevelResult,
    number: Int[Array, " rows"],
    num_rows: int,
) -> _Summed:
    """One all-reduce: what a device knows of its own levels is zero elsewhere."""

    def at_own_rows(x):
        whole = jnp.zeros((num_rows, *x.shape[1:]), x.dtype)
        return jax.lax.dynamic_update_slice_in_dim(whole, x, number[0], axis=0)

    here = _Summed(
        jax.tree.map(lambda x: jnp.sum(x, axis=0), shared),
        jax.tree.map(at_own_rows, own._replace(transition=None, path=None)),
        at_own_rows(
            jnp.broadcast_to(all_finite(own, axes=1), number.shape).astype(
                result.particles.log_w.dtype
            )
        ),
        jax.tree.map(at_own_rows, result.report),
        at_own_rows(jax.vmap(log_Z_hat)(result.particles.log_w)),
    )
    flat, unflatten = ravel_pytree(here)
    return unflatten(jax.lax.psum(flat, "levels"))


def _one_level_up(first: Particles, out: Particles, is_first: Bool[Array, ""]) -> Particles:
    """What comes into a device's levels at the next step: what left the level before each."""
    num, leaves = num_along("levels"), jax.tree.leaves(out)
    last, structure = jax.tree.flatten(jax.tree.map(lambda x: x[-1], out))
    received: list[Any] = [None] * len(last)
    # All arrays of one type travel together.
    for dtype in dict.fromkeys(x.dtype for x in last):
        which = [i for i, x in enumerate(last) if x.dtype == dtype]
        flat = [last[i].reshape(last[i].shape[0], -1) for i in which]
        pairs = [(i, i + 1) for i in range(num - 1)]
        packed = jax.lax.ppermute(over_particles(jnp.concatenate(flat, 1)), "levels", pairs)
        ends = np.cumsum([x.shape[1] for x in flat])[:-1].tolist()
        for i, x in zip(which, jnp.split(packed, ends, axis=1), strict=True):
            received[i] = x.reshape(last[i].shape)
    # The first device's levels start with what left level 1.
    before = [
        jnp.where(is_first, x, y) for x, y in zip(jax.tree.leaves(first), received, strict=True)
    ]
    up = [jnp.concatenate([x[None], xs[:-1]]) for x, xs in zip(before, leaves, strict=True)]
    return jax.tree.unflatten(structure, up)


def _step(
    sampler: NestedSampler,
    objective: Objective,
    first: LevelResult,
    transitions: PyTree,
    total: _Summed,
    carry: Population,
) -> Gradient:
    num = sampler.num_levels - 1
    thetas, report, log_Z_hats = jax.tree.map(
        lambda x: x[:num], (total.thetas, total.report, total.log_Z_hat)
    )
    later = LaterLevels(thetas._replace(transition=transitions), total.shared, report)
    report = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first.report, report)
    finite = (total.finite[:num] > 0) & all_finite(total.shared)
    finite = jnp.concatenate([all_finite(first.gradient)[None], finite])
    return Gradient(
        assemble(sampler, sampler, objective, first.gradient, later),
        finite & defined(report.divergence),
        StepInfo(log_Z_hats[-1], report.ess[-1], report.ess, report.divergence),
        carry,
    )
