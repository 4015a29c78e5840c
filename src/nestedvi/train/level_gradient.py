"""One level's gradient: D_f(π̌_k ‖ π̂_k) differentiated with respect to what belongs to level k.

    g_k = ∂/∂(q_k, r_{k-1}, θ_{k-1}, θ_k, path)  D_f(π̌_k ‖ π̂_k),    the particles that come in held

No gradient crosses from one level to the next, so g_k is a pure function of the incoming particles
and the level: an order of execution may compute the levels in a scan or side by side. How the g_k
become the sampler's gradient is `step_gradient`'s; this module refuses to know of other levels.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import PyTree

from nestedvi._types import Key, LogWeights, PerLevel, Scalar
from nestedvi.divergences.surrogate import surrogate
from nestedvi.kernels.base import Independent, Transition
from nestedvi.particles.resampling import Particles
from nestedvi.particles.weights import ess
from nestedvi.paths.base import AbstractPath
from nestedvi.sampler.level import Level, nothing_in, outgoing, terms
from nestedvi.sampler.nested import NestedSampler
from nestedvi.train.objective import Objective

__all__ = [
    "LevelGradient",
    "LevelMask",
    "LevelParameters",
    "LevelReport",
    "LevelResult",
    "first_level_gradient",
    "later_mask",
    "level_gradient",
    "level_surrogate",
]


class LevelParameters(NamedTuple):
    """What a level's divergence depends on: q_k and r_{k-1}, θ_{k-1} (None at the first level),
    θ_k, and the path, which all levels share.
    """

    transition: PyTree
    theta_prev: PyTree
    theta: PyTree
    path: PyTree


class LevelGradient(NamedTuple):
    """Derivatives with respect to `LevelParameters`; None where the mask is False."""

    transition: PyTree
    theta_prev: PyTree
    theta: PyTree
    path: PyTree


class LevelMask(NamedTuple):
    """Booleans: which of `LevelParameters` are learned."""

    transition: PyTree
    theta_prev: PyTree
    theta: PyTree
    path: PyTree

    def split(self, parameters: LevelParameters) -> tuple[LevelParameters, LevelParameters]:
        """The learned parameters and the fixed ones, each with None in the other's places."""
        return eqx.partition(parameters, LevelParameters(*self))

    def zeros(self, parameters: LevelParameters) -> LevelGradient:
        """A gradient of zeros, to add to."""
        learned, _ = self.split(parameters)
        return LevelGradient(*jax.tree.map(jnp.zeros_like, learned))


class LevelReport(NamedTuple):
    """The ESS of the particles that leave a level, and the estimate of its divergence. With a
    leading axis for several levels.
    """

    ess: Scalar | PerLevel
    divergence: Scalar | PerLevel


class LevelResult(NamedTuple):
    """A level's gradient, the particles that leave it, and its report."""

    gradient: LevelGradient
    particles: Particles
    report: LevelReport


def level_gradient(
    key: Key,
    incoming: Particles,
    level: Level,
    path: AbstractPath,
    mask: LevelMask,
    objective: Objective,
) -> LevelResult:
    """The gradient of D_f(π̌_k ‖ π̂_k) at one level; the incoming particles are constants."""
    parameters = LevelParameters(level.transition, level.theta_prev, level.theta, path)
    learned, fixed = mask.split(parameters)

    def loss(learned: LevelParameters):
        transition, theta_prev, theta, path = eqx.combine(learned, fixed)
        here = Level(transition, theta_prev, theta, level.resampling)
        return level_surrogate(key, incoming, here, path, objective)

    gradient, (out, divergence) = jax.grad(loss, has_aux=True)(learned)
    report = LevelReport(ess(out.log_w), divergence)
    return LevelResult(LevelGradient(*gradient), stop_gradient(out), report)


def level_surrogate(
    key: Key, incoming: Particles, level: Level, path: AbstractPath, objective: Objective
) -> tuple[Scalar, tuple[Particles, Scalar]]:
    """The scalar whose gradient is that of the level's divergence; with it the particles that leave
    the level and the estimate of the divergence.
    """
    rule = objective.gradient_rule(level.transition, first=level.theta_prev is None)
    level_terms = terms(key, incoming, level, path, rule)
    total, divergence = surrogate(
        objective.divergence,
        level_terms,
        _incoming_log_w(objective, incoming.log_w),
        baseline=objective.baseline,
        hold_q=rule.hold_q,
    )
    return total, (outgoing(incoming, level_terms), divergence)


def _incoming_log_w(objective: Objective, log_w: LogWeights) -> LogWeights:
    # Uniform over the particles that are still alive.
    return jnp.where(jnp.isneginf(log_w), log_w, 0.0) if objective.weights == "uniform" else log_w


def first_level_gradient(
    key: Key, sampler: NestedSampler, objective: Objective, num_particles: int
) -> LevelResult:
    """Level 1: nothing comes in, and of the transition only q_1 is learned."""
    level, trainable = sampler.first_level(), objective.trainable(sampler)
    mask = LevelMask(
        transition=Transition(Independent(trainable.initial)),
        theta_prev=None,
        theta=_theta_mask(sampler.path, level.theta, trainable.path),
        path=trainable.path,
    )
    return level_gradient(key, nothing_in(num_particles), level, sampler.path, mask, objective)


def later_mask(sampler: NestedSampler, objective: Objective) -> LevelMask:
    """What is learned at each of levels 2 … K; they are of one kind, so one mask serves all."""
    trainable = objective.trainable(sampler)
    theta = _theta_mask(sampler.path, sampler.level(2).theta, trainable.path)
    return LevelMask(trainable.transitions.transition, theta, theta, trainable.path)


def _theta_mask(path: AbstractPath, theta: PyTree, path_mask: PyTree) -> PyTree:
    """θ_k is learned where it depends on learned parameters of the path."""
    on = any(jax.tree.leaves(path_mask))
    return jax.tree.map(
        lambda x, learned: on and learned and eqx.is_inexact_array(x), theta, path.learned(theta)
    )
