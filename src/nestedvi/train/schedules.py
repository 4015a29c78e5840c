"""Three ways to run the same levels for one training step: sequential, two-phase, level-parallel.

No gradient crosses from one level to the next, so a level's gradient is a pure function of
(particles in, level parameters) and levels may be scheduled freely. All three return the same
record; evaluation never uses them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, PyTree

from nestedvi._types import Key, LogWeights, PerLevel, Scalar
from nestedvi.divergences.surrogate import surrogate
from nestedvi.errors import MissingScoreError, UnknownNameError
from nestedvi.particles.resampling import Particles
from nestedvi.particles.weights import ess, log_Z_hat
from nestedvi.paths.base import AbstractPath, needs_table
from nestedvi.sampler.level import Level, nothing_in, outgoing, terms
from nestedvi.sampler.nested import (
    NestedSampler,
    Shared,
    Stacked,
    level_arrays,
    level_noise,
    prepare,
    run,
)
from nestedvi.train.learner import Gradient
from nestedvi.train.objective import Objective

__all__ = [
    "ORDERS",
    "Gradient",
    "StepInfo",
    "get_order",
    "gradient",
    "initial_population",
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


class _Diff(NamedTuple):
    """Everything a level's divergence is differentiated with respect to."""

    transition: PyTree
    theta_prev: PyTree
    theta: PyTree
    path: PyTree


class _LevelResult(NamedTuple):
    grads: _Diff
    out: Any
    ess: Scalar
    divergence: Scalar


def _log_w_for(objective: Objective, log_w: LogWeights) -> LogWeights:
    # Uniform over the particles that are still alive.
    return jnp.where(jnp.isneginf(log_w), log_w, 0.0) if objective.weights == "uniform" else log_w


def _level_loss(key: Key, incoming: Particles, level: Level, path: Any, objective: Objective):
    """The surrogate of one level, with the particles that leave it and the estimate of its
    divergence.
    """
    rule = objective.gradient_rule(level.transition, first=level.theta_prev is None)
    level_terms = terms(key, incoming, level, path, rule)
    log_w_in = _log_w_for(objective, incoming.log_w)
    total, divergence = surrogate(
        objective.divergence, level_terms, log_w_in, baseline=objective.baseline, hold_q=rule.hold_q
    )
    return total, (outgoing(incoming, level_terms), divergence)


def _level_gradient(
    key: Key, incoming: Particles, level: Level, path: Any, mask: _Diff, objective: Objective
) -> _LevelResult:
    """The gradient of D_f(π̌_k ‖ π̂_k) at one level; the incoming particles are constants."""
    diff, fixed = eqx.partition(_Diff(level.transition, level.theta_prev, level.theta, path), mask)

    def loss(diff: _Diff):
        live = eqx.combine(diff, fixed)
        here = Level(live.transition, live.theta_prev, live.theta, level.resampling)
        return _level_loss(key, incoming, here, live.path, objective)

    grads, (out, divergence) = jax.grad(loss, has_aux=True)(diff)
    return _LevelResult(grads, stop_gradient(out), ess(out.log_w), divergence)


def _theta_mask(path: AbstractPath, theta: PyTree, path_mask: PyTree) -> PyTree:
    on = any(jax.tree.leaves(path_mask))
    return jax.tree.map(
        lambda x, learned: on and learned and eqx.is_inexact_array(x), theta, path.learned(theta)
    )


def _first_mask(sampler: NestedSampler, trainable: PyTree) -> _Diff:
    first = sampler.first_level()
    transition = jax.tree.map(lambda _: False, first.transition)
    transition = eqx.tree_at(
        lambda t: jax.tree.leaves(t.forward.density, is_leaf=lambda x: x is None),
        transition,
        jax.tree.leaves(trainable.initial),
    )
    return _Diff(
        transition, None, _theta_mask(sampler.path, first.theta, trainable.path), trainable.path
    )


def _rest_mask(sampler: NestedSampler, trainable: PyTree) -> _Diff:
    second = sampler.level(2)
    prev, current = (
        _theta_mask(sampler.path, theta, trainable.path)
        for theta in (second.theta_prev, second.theta)
    )
    return _Diff(trainable.transitions.transition, prev, current, trainable.path)


def _assemble(
    sampler: NestedSampler, path_mask: PyTree, trainable: PyTree, first: _LevelResult, rest: _Diff
) -> PyTree:
    """The sampler's gradient from its levels' gradients. `rest` has a leading axis K-1, but for
    what levels share it is a sum.

    `sampler` is the prepared one and `path_mask` is of its path; `trainable` is of the sampler that
    is learned.
    """

    def add(a, b):
        return jax.tree.map(jnp.add, a, b)

    leaves = jax.tree.leaves(first.grads.path), jax.tree.leaves(rest.path)
    path = [a + b for a, b in zip(*leaves, strict=True)]
    if jax.tree.leaves(rest.theta):
        # At the first level a prepared path has no table yet: θ_1 is learned there through the path
        # itself.
        begin = (
            first.grads.theta
            if jax.tree.leaves(first.grads.theta)
            else jax.tree.map(lambda x: 0 * x[0], rest.theta)
        )
        # θ_k occurs as the target of level k and as the proposal of level k+1.
        per_level = jax.tree.map(
            lambda f, prev, current: (
                jnp.concatenate([f[None], current])
                + jnp.pad(prev, ((0, 1),) + ((0, 0),) * (prev.ndim - 1))
            ),
            begin,
            rest.theta_prev,
            rest.theta,
        )
        diff, fixed = eqx.partition(sampler.path, path_mask)
        mask = sampler.path.learned(sampler.level(2).theta)
        _, pull = jax.vjp(lambda d: eqx.filter(eqx.combine(d, fixed).thetas(), mask), diff)
        path = add(path, jax.tree.leaves(pull(per_level)[0]))
    found = iter(jax.tree.leaves((first.grads.transition.forward.density, path, rest.transition)))
    mask_leaves, structure = jax.tree.flatten(trainable)
    return jax.tree.unflatten(structure, [next(found) if on else None for on in mask_leaves])


def _finite(tree: PyTree, axes: int) -> Any:
    """Whether all entries are finite, over all but the first `axes` axes."""
    flags = [
        jnp.all(jnp.isfinite(x), axis=tuple(range(axes, x.ndim))) for x in jax.tree.leaves(tree)
    ]
    return jax.tree.reduce(jnp.logical_and, flags, jnp.array(True))


def _sound(divergence: PerLevel) -> Bool[Array, " levels"]:
    """A NaN density may still have finite derivatives (a constant branch of a `where`); they are
    not those of a divergence.
    """
    return jnp.logical_not(jnp.isnan(divergence))


def _finish(
    sampler,
    masks: _Diff,
    trainable,
    first: _LevelResult,
    rest: _LevelResult,
    last: Particles,
    population,
) -> Gradient:
    grads = _assemble(sampler, masks.path, trainable, first, rest.grads)
    own = rest.grads.transition if isinstance(sampler.transitions, Stacked) else None
    per_level = (own, rest.grads.theta_prev, rest.grads.theta)
    shared = (rest.grads.path, None if own is not None else rest.grads.transition)
    finite = jnp.broadcast_to(_finite(per_level, 1), (sampler.num_levels - 1,)) & _finite(shared, 0)
    finite = jnp.concatenate([_finite(first.grads, 0)[None], finite])
    divergence = jnp.concatenate([first.divergence[None], rest.divergence])
    info = StepInfo(
        log_Z_hat(last.log_w),
        ess(last.log_w),
        jnp.concatenate([first.ess[None], rest.ess]),
        divergence,
    )
    return Gradient(grads, finite & _sound(divergence), info, population)


def _sum_shared(sampler: NestedSampler, grads: _Diff) -> _Diff:
    """Sums over the level axis what levels share (after a vmap)."""

    def total(tree):
        return jax.tree.map(lambda x: jnp.sum(x, axis=0), tree)

    transition = (
        total(grads.transition) if isinstance(sampler.transitions, Shared) else grads.transition
    )
    return grads._replace(path=total(grads.path), transition=transition)


def _first(
    key, sampler, objective, trainable, num_particles
) -> tuple[_LevelResult, NestedSampler, Particles, _Diff]:
    """The first level's gradient, and what the later levels start with: the prepared sampler, its
    particles, and its masks.
    """
    mask = _first_mask(sampler, trainable)
    first = _level_gradient(
        key, nothing_in(num_particles), sampler.first_level(), sampler.path, mask, objective
    )
    sampler, particles = prepare(sampler, first.out)
    return first, sampler, particles, _rest_mask(sampler, objective.trainable(sampler))


def _sequential(key, sampler, objective, trainable, num_particles, population) -> Gradient:
    """A scan over levels that differentiates inside its body: memory is flat in K."""
    key_first, key_rest = jax.random.split(key)
    noise = level_noise(key_rest, sampler)
    first, sampler, particles, masks = _first(
        key_first, sampler, objective, trainable, num_particles
    )
    shares = isinstance(sampler.transitions, Shared)
    arrays, rebuild = level_arrays(sampler)

    def zeros(tree, mask):
        return jax.tree.map(jnp.zeros_like, eqx.filter(tree, mask))

    common = (
        zeros(sampler.path, masks.path),
        zeros(sampler.transitions.transition, masks.transition) if shares else None,
    )

    def body(carry, inputs):
        particles, (path_grads, transition_grads) = carry
        slice_, (resample_noise, key_move) = inputs
        level = rebuild(slice_)
        incoming, _, _ = level.resampling(resample_noise, particles)
        result = _level_gradient(key_move, incoming, level, sampler.path, masks, objective)
        path_grads = jax.tree.map(jnp.add, path_grads, result.grads.path)
        own = result.grads.transition
        if shares:
            transition_grads, own = jax.tree.map(jnp.add, transition_grads, own), None
        grads = result.grads._replace(path=None, transition=own)
        return (result.out, (path_grads, transition_grads)), result._replace(grads=grads, out=None)

    (last, (path_grads, transition_grads)), rest = jax.lax.scan(
        body, (particles, common), (arrays, noise)
    )
    grads = rest.grads._replace(path=path_grads)
    if shares:
        grads = grads._replace(transition=transition_grads)
    return _finish(sampler, masks, trainable, first, rest._replace(grads=grads), last, population)


def _parallel(sampler, objective, masks, keys, incoming: Particles) -> _LevelResult:
    """Every level after the first at once, each from its own incoming particles (leading axis
    K-1).
    """
    arrays, rebuild = level_arrays(sampler)

    def one(slice_, key, incoming):
        return _level_gradient(key, incoming, rebuild(slice_), sampler.path, masks, objective)

    result = jax.vmap(one)(arrays, keys, incoming)
    return result._replace(grads=_sum_shared(sampler, result.grads))


def _two_phase(key, sampler, objective, trainable, num_particles, population) -> Gradient:
    """Samples all levels without gradients, keeps the particles, then differentiates all levels
    side by side.
    """
    key_first, key_rest = jax.random.split(key)
    noise = level_noise(key_rest, sampler)
    first, sampler, particles, masks = _first(
        key_first, sampler, objective, trainable, num_particles
    )
    arrays, rebuild = level_arrays(sampler)

    def body(particles, inputs):
        slice_, (resample_noise, key_move) = inputs
        level = rebuild(slice_)
        incoming, _, _ = level.resampling(resample_noise, particles)
        return outgoing(incoming, terms(key_move, incoming, level, sampler.path)), incoming

    last, incoming = jax.lax.scan(body, particles, (arrays, noise))
    rest = _parallel(sampler, objective, masks, noise[1], incoming)
    return _finish(sampler, masks, trainable, first, rest, last, population)


def _but_last(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[:-1] if eqx.is_array(x) else x, tree)


class Population(NamedTuple):
    """Level-parallel state: the particles that left levels 1 … K-1 at the last step, and the path's
    arrays of that time.
    """

    particles: Particles
    path: PyTree


def _level_parallel(
    key, sampler, objective, trainable, num_particles, population: Population
) -> Gradient:
    """One step advances every level from the previous step's particles, then shifts them up by one.

    Particles were made under slightly older θ; multiplying their weights by γ_k(z; new θ)/γ_k(z;
    old θ) keeps them properly weighted for the γ_k of now.
    """
    key_first, key_rest = jax.random.split(key)
    noise = level_noise(key_rest, sampler)
    first, sampler, _, masks = _first(key_first, sampler, objective, trainable, num_particles)
    arrays, static = eqx.partition(sampler.path, eqx.is_array)
    old_path = eqx.combine(population.path, static)
    new_thetas, rest = eqx.partition(_but_last(sampler.path.thetas()), eqx.is_array)
    old_thetas = eqx.filter(_but_last(old_path.thetas()), eqx.is_array)

    def refresh(particles: Particles, old, new, noise) -> Particles:
        log_new = jax.vmap(lambda s: sampler.path.log_gamma_prev(eqx.combine(new, rest), s))(
            particles.stats
        )
        log_old = jax.vmap(lambda s: old_path.log_gamma_prev(eqx.combine(old, rest), s))(
            particles.stats
        )
        gone = jnp.isneginf(log_old) | jnp.isneginf(particles.log_w)
        log_w = jnp.where(gone, -jnp.inf, particles.log_w + log_new - jnp.where(gone, 0.0, log_old))
        return sampler.resampling(noise, particles._replace(log_w=log_w))[0]

    incoming = jax.vmap(refresh)(population.particles, old_thetas, new_thetas, noise[0])
    rest = _parallel(sampler, objective, masks, noise[1], incoming)
    last = jax.tree.map(lambda x: x[-1], rest.out)
    shifted = jax.tree.map(lambda f, xs: jnp.concatenate([f[None], xs[:-1]]), first.out, rest.out)
    return _finish(
        sampler, masks, trainable, first, rest._replace(out=None), last, Population(shifted, arrays)
    )


def _ragged(key, sampler, objective, trainable, num_particles, population) -> Gradient:
    """Unequal levels: a Python loop; every level still sees its incoming particles as constants."""
    key_first, key_rest = jax.random.split(key)
    noise = level_noise(key_rest, sampler)
    diff, fixed = eqx.partition(sampler, trainable)

    def level_loss(diff, k, incoming, key_move):
        live = eqx.combine(diff, fixed)
        level = live.first_level() if k == 1 else live.level(k)
        return _level_loss(key_move, incoming, level, live.path, objective)

    particles, totals, finites, sizes, divergences = nothing_in(num_particles), None, [], [], []
    for k in range(1, sampler.num_levels + 1):
        key_move = key_first if k == 1 else noise[k - 2][1]
        if k > 1:
            particles, _, _ = sampler.level(k).resampling(noise[k - 2][0], particles)
        grads, (particles, divergence) = jax.grad(level_loss, has_aux=True)(
            diff, k, particles, key_move
        )
        totals = grads if totals is None else jax.tree.map(jnp.add, totals, grads)
        finites.append(_finite(grads, 0))
        sizes.append(ess(particles.log_w))
        divergences.append(divergence)
    info = StepInfo(
        log_Z_hat(particles.log_w), ess(particles.log_w), jnp.stack(sizes), jnp.stack(divergences)
    )
    return Gradient(totals, jnp.stack(finites) & _sound(info.level_divergence), info, population)


def _bound(key, sampler, objective, trainable, num_particles, population) -> Gradient:
    """−log Ẑ differentiated through all levels at once (IWAE, VSMC); the choice of ancestors
    carries no gradient.
    """
    diff, fixed = eqx.partition(sampler, trainable)
    levels = [sampler.first_level()] if "initial" in objective.learn else []
    for level in [*levels, *(sampler.level(k) for k in range(2, sampler.num_levels + 1))]:
        if not level.transition.reparameterised:
            raise MissingScoreError(
                "A bound through all levels is differentiated pathwise, and this sampler has draws"
                " that are not reparameterised: their gradient would silently be missing. Use a"
                " nested objective (kind='nested')."
            )

    def loss(diff):
        result = run(key, eqx.combine(diff, fixed), num_particles)
        return -result.log_Z_hat, result

    grads, result = jax.grad(loss, has_aux=True)(diff)
    info = StepInfo(result.log_Z_hat, result.ess, result.info.ess, result.info.kl_reverse)
    # One gradient runs through all levels: a NaN density says which of them spoilt it, otherwise
    # all are counted.
    sound = _sound(info.level_divergence)
    return Gradient(grads, jnp.where(jnp.all(sound), _finite(grads, 0), sound), info, population)


ORDERS: dict[str, Callable[..., Gradient]] = {
    "sequential": _sequential,
    "two-phase": _two_phase,
    "level-parallel": _level_parallel,
}


def get_order(name: str) -> Callable[..., Gradient]:
    """A order by name."""
    if name not in ORDERS:
        raise UnknownNameError("order", name, ORDERS)
    return ORDERS[name]


def initial_population(key: Key, sampler: NestedSampler, order: str, num_particles: int) -> Any:
    """What a order carries from step to step: nothing, or for level-parallel one population a
    level.
    """
    get_order(order)
    if order != "level-parallel":
        return None
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
    return Population(_but_last(history), eqx.filter(sampler.path, eqx.is_array))


def gradient(
    key: Key,
    sampler: NestedSampler,
    objective: Objective,
    num_particles: int,
    *,
    order: str = "sequential",
    population: Any = None,
) -> Gradient:
    """One training step's gradient under the chosen order."""
    step = get_order(order)
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
    trainable = objective.trainable(sampler)
    if objective.kind == "bound":
        return _bound(key, sampler, objective, trainable, num_particles, population)
    if not sampler.homogeneous:
        return _ragged(key, sampler, objective, trainable, num_particles, population)
    return step(key, sampler, objective, trainable, num_particles, population)
