"""A quick look at an unknown target: adaptive tempered SMC with random-walk moves tuned from the particles.

It learns nothing; it finds where the mass is, so that a learned sampler starts from a base of the right place and size.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Flag, Key, Scalar
from nestedvi.densities.compound import ScaleMixture
from nestedvi.evaluate.tempered import next_beta
from nestedvi.kernels.base import Context
from nestedvi.kernels.mcmc import RandomWalk
from nestedvi.particles.resampling import Systematic
from nestedvi.particles.weights import normalise

__all__ = ["Pilot", "pilot"]

_ESS_SHARE = 0.6
_MAX_LEVELS = 200


class Pilot(NamedTuple):
    """Particles of the target, their mean and spread in each coordinate, how many temperatures it took, and whether any
    particle ended where the target has mass."""

    z: Float[Array, "particles dim"]
    mean: Float[Array, " dim"]
    spread: Float[Array, " dim"]
    num_levels: Any
    beta: Scalar
    found: Flag


@eqx.filter_jit
def pilot(key: Key, log_gamma: Callable[[Any], Scalar], dim: int, num_particles: int = 1000, steps: int = 10) -> Pilot:
    """Runs until β = 1 (or `_MAX_LEVELS` temperatures, which the result's β shows)."""
    key_start, key_loop = jax.random.split(key)
    base = ScaleMixture(dim)
    z = jax.vmap(base.sample)(jax.random.split(key_start, num_particles))

    def go_on(carry):
        _, beta, level = carry
        return jnp.logical_and(beta < 1, level < _MAX_LEVELS)

    def level(carry):
        z, beta, k = carry
        log_base, log_target = jax.vmap(base.log_gamma)(z), jax.vmap(log_gamma)(z)
        log_ratio = jnp.where(jnp.isfinite(log_target), log_target - log_base, -jnp.inf)
        new = next_beta(beta, log_ratio, _ESS_SHARE)
        log_w = jnp.where(jnp.isneginf(log_ratio), -jnp.inf, (new - beta) * jnp.where(jnp.isfinite(log_ratio), log_ratio, 0.0))
        key_level = jax.random.fold_in(key_loop, k)
        z = z[Systematic().ancestors(jax.random.uniform(key_level, (num_particles,)), normalise(log_w))]
        context = Context(None, lambda x: (1 - new) * base.log_gamma(x) + new * log_gamma(x))
        z = _rejuvenate(jax.random.fold_in(key_level, 1), z, context, steps)
        return z, new, k + 1

    z, beta, num = jax.lax.while_loop(go_on, level, (z, jnp.zeros(()), 0))
    found = jnp.any(jnp.isfinite(jax.vmap(log_gamma)(z)))
    return Pilot(z, jnp.mean(z, axis=0), jnp.std(z, axis=0), num, beta, found)


def _rejuvenate(key: Key, z, context: Context, steps: int):
    """Random-walk moves with the particles' own spread, in sizes from a full step down to a twentieth."""
    keys = jax.random.split(key, z.shape[0])
    spread = jnp.std(z, axis=0) + 1e-8
    for fraction in (1.0, 0.3, 0.05):
        move = RandomWalk(2.38 / z.shape[1] ** 0.5 * fraction * spread, steps)
        z, _ = jax.vmap(lambda k, x, move=move: move.move(k, x, context))(keys, z)
        keys = jax.vmap(lambda k: jax.random.fold_in(k, 7))(keys)
    return z
