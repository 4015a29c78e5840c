"""Levels of unequal kinds, from `compose` or a path of unlike densities: a Python loop.

Parameters have no level axis here, so each level differentiates the whole sampler and the gradients
are added; every level still sees its incoming particles as constants.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from nestedvi._types import Key
from nestedvi.particles.weights import ess, log_Z_hat
from nestedvi.sampler.level import nothing_in
from nestedvi.sampler.nested import NestedSampler
from nestedvi.sampler.run import level_noise
from nestedvi.train.learner import Gradient
from nestedvi.train.level_gradient import level_surrogate
from nestedvi.train.objective import Objective
from nestedvi.train.step_gradient import StepInfo, add, all_finite, defined

__all__ = ["unequal_levels_gradient"]


def unequal_levels_gradient(
    key: Key, sampler: NestedSampler, objective: Objective, num_particles: int
) -> Gradient:
    """Σ_k ∂D_f(π̌_k ‖ π̂_k), one level after the other."""
    key_first, key_rest = jax.random.split(key)
    noise = level_noise(key_rest, sampler)
    learned, fixed = eqx.partition(sampler, objective.trainable(sampler))

    def loss(learned, k, key_move, incoming):
        live = eqx.combine(learned, fixed)
        level = live.first_level() if k == 1 else live.level(k)
        return level_surrogate(key_move, incoming, level, live.path, objective)

    level_gradient = jax.grad(loss, has_aux=True)
    total, (particles, divergence) = level_gradient(
        learned, 1, key_first, nothing_in(num_particles)
    )
    finite, sizes, divergences = [all_finite(total)], [ess(particles.log_w)], [divergence]
    for k, (resample_noise, key_move) in enumerate(noise, start=2):
        incoming, _, _ = sampler.level(k).resampling(resample_noise, particles)
        grads, (particles, divergence) = level_gradient(learned, k, key_move, incoming)
        total = add(total, grads)
        finite.append(all_finite(grads))
        sizes.append(ess(particles.log_w))
        divergences.append(divergence)
    info = StepInfo(
        log_Z_hat(particles.log_w), ess(particles.log_w), jnp.stack(sizes), jnp.stack(divergences)
    )
    return Gradient(total, jnp.stack(finite) & defined(info.level_divergence), info, None)
