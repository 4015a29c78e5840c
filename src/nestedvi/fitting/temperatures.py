"""Temperatures learned by the nested objective, from the particles of an adaptive run: no gradients
of the target.

Between moves that leave each density invariant, level k's divergence is that of neighbours on the
path, and with A(β) = log Z(β)

    KL(π_k ‖ π_{k-1}) = (β_k − β_{k-1}) A'(β_k) − A(β_k) + A(β_{k-1}),
    A'(β) = E_β[log γ − log q_1].

A and A' are estimated at any β from the particles of the nearest temperature below, weighted. All
levels count alike, though the first has more draws than particles go on: where a base draws too
seldom, many draws do not tell, and small steps are safer.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from nestedvi._types import Scalar
from nestedvi.compilation import compiled_soon
from nestedvi.particles.weights import log_Z_hat, normalise
from nestedvi.paths.schedules import LearnedSchedule

__all__ = ["PathPotential", "learn_betas"]

_STEPS, _RATE = 300, 0.03
# Ratios further under the largest than this are as good as zero weights, and their squares are
# still numbers.
_FAR = 1e4


class PathPotential(eqx.Module):
    """A(β) − A(0) and A'(β) along a path, from `log_ratios` log γ − log q_1 at particles of
    temperatures that rise from 0.

    Temperatures that were not reached are infinite. γ counts up to a factor: A is given up to a
    multiple of β.
    """

    nodes: Float[Array, " nodes"]
    heights: Float[Array, " nodes"]
    log_ratios: Float[Array, "nodes particles"]

    def __init__(self, nodes: Float[Array, " nodes"], log_ratios: Float[Array, "nodes particles"]):
        self.nodes = nodes
        # A constant in log γ changes no divergence, and a large one would swallow their digits.
        log_ratios = log_ratios - jnp.max(log_ratios[0])
        self.log_ratios = jnp.maximum(log_ratios, jnp.max(log_ratios, axis=1, keepdims=True) - _FAR)
        rises = jnp.where(jnp.isfinite(nodes[1:]), jnp.diff(nodes), 0.0)
        factors = jax.vmap(log_Z_hat)(rises[:, None] * self.log_ratios[:-1])
        self.heights = jnp.concatenate([jnp.zeros_like(factors[:1]), jnp.cumsum(factors)])

    def __call__(self, beta: Scalar) -> tuple[Scalar, Scalar]:
        at = jnp.searchsorted(self.nodes, beta, side="right") - 1
        log_ratio = self.log_ratios[at]
        log_w = (beta - self.nodes[at]) * log_ratio
        return self.heights[at] + log_Z_hat(log_w), jnp.sum(normalise(log_w) * log_ratio)

    def divergences(self, betas: Float[Array, " levels"]) -> Float[Array, " levels-1"]:
        """KL(π_k ‖ π_{k-1}) between neighbouring temperatures."""
        heights, slopes = jax.vmap(self)(betas)
        return jnp.diff(betas) * slopes[1:] - jnp.diff(heights)


@compiled_soon
def learn_betas(schedule: LearnedSchedule, potential: PathPotential) -> LearnedSchedule:
    """The schedule with the least sum of divergences that was seen on the way down from
    `schedule`.
    """
    optimiser = optax.adam(optax.cosine_decay_schedule(_RATE, _STEPS))

    def loss(schedule: LearnedSchedule) -> Scalar:
        return jnp.sum(potential.divergences(schedule.betas()))

    def step(state, _):
        schedule, memory, best, lowest = state
        value, gradient = eqx.filter_value_and_grad(loss)(schedule)
        best = jax.tree.map(lambda new, old: jnp.where(value < lowest, new, old), schedule, best)
        updates, memory = optimiser.update(gradient, memory)
        return (
            optax.apply_updates(schedule, updates),
            memory,
            best,
            jnp.minimum(value, lowest),
        ), None

    first = (
        schedule,
        optimiser.init(schedule),
        schedule,
        jnp.asarray(jnp.inf, schedule.logits.dtype),
    )
    return jax.lax.scan(step, first, None, length=_STEPS)[0][2]
