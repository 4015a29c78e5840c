"""One step's gradient from those of its levels, with a report and a flag for every level.

What belongs to one level takes that level's gradient. What levels share (the path, a `Shared`
transition) takes the sum. θ_k is a function of the path's parameters, so its gradients from level k
and level k+1 are pulled back through `thetas()`, once for all levels. This module refuses to decide
in which order levels are computed.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from nestedvi._types import Key, PerLevel, Scalar
from nestedvi.particles.resampling import Particles
from nestedvi.particles.weights import ess, log_Z_hat
from nestedvi.sampler.nested import NestedSampler, Shared, level_arrays
from nestedvi.train.learner import Gradient
from nestedvi.train.level_gradient import (
    LevelGradient,
    LevelMask,
    LevelParameters,
    LevelReport,
    LevelResult,
    level_gradient,
)
from nestedvi.train.objective import Objective

__all__ = [
    "LaterLevels",
    "StepInfo",
    "add",
    "all_finite",
    "assemble",
    "defined",
    "later_levels_at_once",
    "no_shared_gradient",
    "split_shared",
    "step_gradient",
    "step_measures",
]


class StepInfo(NamedTuple):
    """What a training step reports: log Ẑ and ESS of the last level, and per level the ESS and the
    divergence.
    """

    log_Z_hat: Scalar
    ess: Scalar
    level_ess: PerLevel
    level_divergence: PerLevel


def step_measures(record: Any, num_particles: int) -> dict[str, float]:
    """What a progress display shows of the records of some steps."""
    percent = float(100 * np.mean(record.ess) / num_particles)
    return {"log_Z_hat": float(np.mean(record.log_Z_hat)), "ess_percent": percent}


class LaterLevels(NamedTuple):
    """Levels 2 … K: the gradients of what each has of its own (leading axis K-1), the sum of the
    gradients of what they share, and their reports (leading axis K-1).
    """

    own: LevelGradient
    shared: LevelGradient
    report: LevelReport


def split_shared(
    sampler: NestedSampler, gradient: LevelGradient
) -> tuple[LevelGradient, LevelGradient]:
    """A gradient's part for what a level has of its own, and that for what all levels share."""
    if isinstance(sampler.transitions, Shared):
        return (
            gradient._replace(transition=None, path=None),
            gradient._replace(theta_prev=None, theta=None),
        )
    return (
        gradient._replace(path=None),
        gradient._replace(transition=None, theta_prev=None, theta=None),
    )


def no_shared_gradient(sampler: NestedSampler, mask: LevelMask) -> LevelGradient:
    """Zeros for what all levels share."""
    level = sampler.level(2)
    parameters = LevelParameters(level.transition, level.theta_prev, level.theta, sampler.path)
    _, shared = split_shared(sampler, mask.zeros(parameters))
    return shared


def later_levels_at_once(
    keys: Key, incoming: Particles, sampler: NestedSampler, mask: LevelMask, objective: Objective
) -> tuple[LaterLevels, Particles]:
    """Levels 2 … K side by side, each from its own key and incoming particles (leading axis K-1);
    also the particles that leave them.
    """
    arrays, rebuild = level_arrays(sampler)

    def one(slice_, key, incoming):
        return level_gradient(key, incoming, rebuild(slice_), sampler.path, mask, objective)

    result = jax.vmap(one)(arrays, keys, incoming)
    own, shared = split_shared(sampler, result.gradient)
    total = jax.tree.map(lambda x: jnp.sum(x, axis=0), shared)
    return LaterLevels(own, total, result.report), result.particles


def step_gradient(
    sampler: NestedSampler,
    prepared: NestedSampler,
    objective: Objective,
    first: LevelResult,
    later: LaterLevels,
    last: Particles,
    carry: Any = None,
) -> Gradient:
    """The gradient of `sampler`, whose later levels ran as `prepared` and ended with `last`;
    `carry` goes on to the next step.
    """
    report = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first.report, later.report)
    info = StepInfo(log_Z_hat(last.log_w), ess(last.log_w), report.ess, report.divergence)
    own = jnp.broadcast_to(all_finite(later.own, axes=1), (sampler.num_levels - 1,))
    finite = jnp.concatenate([all_finite(first.gradient)[None], own & all_finite(later.shared)])
    return Gradient(
        assemble(sampler, prepared, objective, first.gradient, later),
        finite & defined(report.divergence),
        info,
        carry,
    )


def add(one: PyTree, other: PyTree) -> PyTree:
    """The sum of two gradients, leaf by leaf."""
    return jax.tree.map(jnp.add, one, other)


def all_finite(tree: PyTree, axes: int = 0) -> Bool[Array, "..."]:
    """Whether all entries are finite, over all but the first `axes` axes."""
    flags = [
        jnp.all(jnp.isfinite(x), axis=tuple(range(axes, x.ndim))) for x in jax.tree.leaves(tree)
    ]
    return jax.tree.reduce(jnp.logical_and, flags, jnp.array(True))


def defined(divergence: PerLevel) -> Bool[Array, " levels"]:
    """A NaN density may still have finite derivatives (a constant branch of a `where`); they are
    not those of a divergence.
    """
    return jnp.logical_not(jnp.isnan(divergence))


def assemble(
    sampler: NestedSampler,
    prepared: NestedSampler,
    objective: Objective,
    first: LevelGradient,
    later: LaterLevels,
) -> PyTree:
    """The gradient in the shape of `sampler`: q_1 from level 1, transitions from their levels, the
    path from all.
    """
    shared = isinstance(sampler.transitions, Shared)
    transitions = later.shared.transition if shared else later.own.transition
    path = _path_gradient(prepared, objective.trainable(prepared).path, first, later)
    # In the order of a sampler's fields. A prepared path has more leaves than the path that is
    # learned, but not more learned ones.
    arrays = iter(jax.tree.leaves((first.transition.forward.density, path, transitions)))
    learned, structure = jax.tree.flatten(objective.trainable(sampler))
    return jax.tree.unflatten(structure, [next(arrays) if on else None for on in learned])


def _path_gradient(
    prepared: NestedSampler, path_mask: PyTree, first: LevelGradient, later: LaterLevels
) -> list[Array]:
    """The leaves of the path's gradient: what levels read of the path itself, and what they read of
    θ_1 … θ_K, pulled back through `thetas()`.
    """
    direct = add(jax.tree.leaves(first.path), jax.tree.leaves(later.shared.path))
    if not jax.tree.leaves(later.own.theta):
        return direct
    learned, fixed = eqx.partition(prepared.path, path_mask)
    depends = prepared.path.learned(prepared.level(2).theta)

    def thetas(learned):
        return eqx.filter(eqx.combine(learned, fixed).thetas(), depends)

    _, pull_back = jax.vjp(thetas, learned)
    (through_thetas,) = pull_back(_theta_gradients(first, later.own))
    return add(direct, jax.tree.leaves(through_thetas))


def _theta_gradients(first: LevelGradient, later: LevelGradient) -> PyTree:
    """The gradients of θ_1 … θ_K on a leading axis K. θ_k occurs as the target of level k and as
    the proposal of level k+1.
    """
    # At the first level a prepared path has no table yet: θ_1 is learned there through the path
    # itself.
    start = first.theta
    if not jax.tree.leaves(start):
        start = jax.tree.map(lambda x: 0 * x[0], later.theta)

    def both(start, as_proposal, as_target):
        after = ((0, 1),) + ((0, 0),) * (as_proposal.ndim - 1)
        return jnp.concatenate([start[None], as_target]) + jnp.pad(as_proposal, after)

    return jax.tree.map(both, start, later.theta_prev, later.theta)
