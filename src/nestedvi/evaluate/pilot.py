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
from nestedvi.evaluate.tempered import next_beta
from nestedvi.kernels.base import Context
from nestedvi.kernels.mcmc import RandomWalk
from nestedvi.particles.resampling import Systematic
from nestedvi.particles.weights import normalise

__all__ = ["Pilot", "pilot"]

_SCALES = (0.3, 1.0, 3.0, 10.0, 30.0)
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


def _log_base(z: Float[Array, " dim"]) -> Scalar:
    """An equal mixture of centred Gaussians over two decades of scale: heavy enough for targets of unknown size."""
    scales = jnp.asarray(_SCALES, z.dtype)
    square = jnp.sum(z**2) / scales**2
    return jax.nn.logsumexp(-0.5 * square - z.shape[0] * jnp.log(scales))


@eqx.filter_jit
def pilot(key: Key, log_gamma: Callable[[Any], Scalar], dim: int, num_particles: int = 1000, steps: int = 10) -> Pilot:
    """Runs until β = 1 (or `_MAX_LEVELS` temperatures, which the result's β shows)."""
    key_scale, key_noise, key_loop = jax.random.split(key, 3)
    scale = jnp.asarray(_SCALES)[jax.random.randint(key_scale, (num_particles, 1), 0, len(_SCALES))]
    z = scale * jax.random.normal(key_noise, (num_particles, dim))

    def go_on(carry):
        _, beta, level = carry
        return jnp.logical_and(beta < 1, level < _MAX_LEVELS)

    def level(carry):
        z, beta, k = carry
        log_base, log_target = jax.vmap(_log_base)(z), jax.vmap(log_gamma)(z)
        log_ratio = jnp.where(jnp.isfinite(log_target), log_target - log_base, -jnp.inf)
        new = next_beta(beta, log_ratio, _ESS_SHARE)
        log_w = jnp.where(jnp.isneginf(log_ratio), -jnp.inf, (new - beta) * jnp.where(jnp.isfinite(log_ratio), log_ratio, 0.0))
        key_level = jax.random.fold_in(key_loop, k)
        z = z[Systematic().ancestors(jax.random.uniform(key_level, (num_particles,)), normalise(log_w))]
        context = Context(None, lambda x: (1 - new) * _log_base(x) + new * log_gamma(x))
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
