"""A bound on log Z_K through all levels: −log Ẑ, differentiated pathwise (IWAE, VSMC).

Here gradients do cross levels; the choice of ancestors carries none.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from nestedvi._types import Key
from nestedvi.errors import MissingScoreError
from nestedvi.sampler.nested import NestedSampler
from nestedvi.sampler.run import run
from nestedvi.train.learner import Gradient
from nestedvi.train.objective import Objective
from nestedvi.train.step_gradient import StepInfo, all_finite, defined

__all__ = ["bound_gradient"]


def bound_gradient(
    key: Key, sampler: NestedSampler, objective: Objective, num_particles: int
) -> Gradient:
    """∂(−log Ẑ), through a whole run."""
    _check_pathwise(sampler, objective)
    learned, fixed = eqx.partition(sampler, objective.trainable(sampler))

    def loss(learned):
        result = run(key, eqx.combine(learned, fixed), num_particles)
        return -result.log_Z_hat, result

    grads, result = jax.grad(loss, has_aux=True)(learned)
    info = StepInfo(result.log_Z_hat, result.ess, result.info.ess, result.info.kl_reverse)
    # One gradient runs through all levels: a NaN density says which of them spoilt it, otherwise
    # all are counted.
    sound = defined(info.level_divergence)
    return Gradient(grads, jnp.where(jnp.all(sound), all_finite(grads), sound), info, None)


def _check_pathwise(sampler: NestedSampler, objective: Objective) -> None:
    levels = [sampler.level(k) for k in range(2, sampler.num_levels + 1)]
    if "initial" in objective.learn:
        levels.append(sampler.first_level())
    if not all(level.transition.reparameterised for level in levels):
        raise MissingScoreError(
            "A bound through all levels is differentiated pathwise, and this sampler has draws"
            " that are not reparameterised: their gradient would silently be missing. Use a"
            " nested objective (kind='nested')."
        )
