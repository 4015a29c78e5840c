"""Adaptive tempered SMC with Hamiltonian moves: temperatures by an ESS rule, metric and step size from the particles.

It learns nothing. As `method="smc"` it is what every learned method must beat; with a fitted base it makes that base's next data.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.evaluate.tempered import next_beta
from nestedvi.kernels.hmc import hamiltonian_step
from nestedvi.particles.resampling import Systematic
from nestedvi.particles.weights import log_Z_hat, normalise
from nestedvi.train.ica import whiten

__all__ = ["MAX_LEVELS", "Plan", "Tempering", "tempering"]

MAX_LEVELS = 200
_ACCEPTANCE = 0.8
# A weight of zero as a number that can be multiplied with β = 0.
_NOTHING = -1e30


class Plan(NamedTuple):
    """How a run goes: the ESS that a temperature leaves, moves at each temperature and at the end, leapfrog steps of a move."""

    ess_share: float
    moves: int
    extra: int = 0
    leaps: int = 10


class Tempering(NamedTuple):
    """A run from a base to the target.

    `z` are equally weighted particles at the end, `history` those after every further move at β = 1 (first axis: moves). `betas`
    and `step_sizes` hold the first `num_levels` entries; `gradients` counts gradients of the target for each particle.
    """

    z: Float[Array, "particles dim"]
    history: Float[Array, "moves particles dim"]
    log_Z_hat: Scalar
    beta: Scalar
    num_levels: Int[Array, ""]
    betas: Float[Array, " levels"]
    step_sizes: Float[Array, " levels"]
    step_size: Scalar
    root: Float[Array, "dim dim"]
    acceptance: Scalar
    gradients: Int[Array, ""]


@eqx.filter_jit
def tempering(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    plan: Plan,
    *,
    num_particles: int,
    step_size: Scalar | float = 0.3,
) -> Tempering:
    """γ_β = base^{1-β} target^β from β = 0 to 1."""
    ess_share, moves, extra, leaps = plan
    key_start, key_levels, key_extra = jax.random.split(key, 3)
    z = jax.vmap(base.sample)(jax.random.split(key_start, num_particles))
    log_base, log_gamma = (lambda z: base.log_gamma(z) - base.log_Z), target.log_gamma

    def move_all(key, z, log_density, root, step_size):
        one = lambda k, x: hamiltonian_step(k, x, log_density, step_size, root, leaps)  # noqa: E731
        moved = jax.vmap(one)(jax.random.split(key, num_particles), z)
        rate = jnp.sum(moved.acceptance * moved.tuned) / jnp.maximum(jnp.sum(moved.tuned), 1)
        return moved.z, step_size * jnp.exp(rate - _ACCEPTANCE), rate

    def go_on(state):
        return jnp.logical_and(state["beta"] < 1, state["level"] < MAX_LEVELS)

    def level(state):
        z, beta, k = state["z"], state["beta"], state["level"]
        log_ratio = jax.vmap(lambda z: log_gamma(z) - log_base(z))(z)
        log_ratio = jnp.where(jnp.isnan(log_ratio), _NOTHING, jnp.clip(log_ratio, _NOTHING, -_NOTHING))
        new = next_beta(beta, log_ratio, ess_share)
        log_w = (new - beta) * log_ratio
        key_resample, key_moves = jax.random.split(jax.random.fold_in(key_levels, k))
        z = z[Systematic().ancestors(jax.random.uniform(key_resample, (num_particles,)), normalise(log_w))]
        root = whiten(z)[1]
        density = lambda z: (1 - new) * log_base(z) + new * log_gamma(z)  # noqa: E731

        def move(carry, key):
            z, step_size, rate = move_all(key, carry[0], density, root, carry[1])
            return (z, step_size), rate

        (z, step_size), rates = jax.lax.scan(move, (z, state["step_size"]), jax.random.split(key_moves, moves))
        return {
            "z": z,
            "beta": new,
            "level": k + 1,
            "log_Z": state["log_Z"] + log_Z_hat(log_w),
            "step_size": step_size,
            "betas": state["betas"].at[k].set(new),
            "step_sizes": state["step_sizes"].at[k].set(step_size),
            "rate": jnp.mean(rates),
        }

    zero = jnp.zeros((), z.dtype)
    start = {
        "z": z,
        "beta": zero,
        "level": jnp.zeros((), jnp.int32),
        "log_Z": zero,
        "step_size": zero + step_size,
        "betas": jnp.ones(MAX_LEVELS, z.dtype),
        "step_sizes": jnp.zeros(MAX_LEVELS, z.dtype),
        "rate": zero,
    }
    end = jax.lax.while_loop(go_on, level, start)
    root = whiten(end["z"])[1]

    def more(carry, key):
        z, step_size, _ = move_all(key, carry[0], log_gamma, root, carry[1])
        return (z, step_size), z

    (z, last_size), history = jax.lax.scan(more, (end["z"], end["step_size"]), jax.random.split(key_extra, extra))
    gradients = (end["level"] * moves + extra) * (leaps + 1)
    return Tempering(
        z,
        jnp.concatenate([end["z"][None], history]),
        end["log_Z"],
        end["beta"],
        end["level"],
        end["betas"],
        end["step_sizes"],
        last_size,
        root,
        end["rate"],
        gradients,
    )
