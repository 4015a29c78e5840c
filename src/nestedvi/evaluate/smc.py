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
from nestedvi.particles.resampling import systematic
from nestedvi.particles.weights import ess, log_Z_hat, normalise
from nestedvi.train.ica import whiten

__all__ = ["MAX_LEVELS", "Plan", "Tempering", "tempering"]

MAX_LEVELS = 200
_ACCEPTANCE = 0.8
# A weight of zero as a number that can be multiplied with β = 0.
_NOTHING = -1e30


class Plan(NamedTuple):
    """How a run goes: the ESS that a temperature leaves, moves at each temperature, how many rounds of moves come after the last
    temperature, leapfrog steps of a move, and how many draws from the base there are for each particle that goes on."""

    ess_share: float
    moves: int
    extra: int = 0
    leaps: int = 10
    draws: int = 1


class Tempering(NamedTuple):
    """A run from a base to the target.

    `z` are equally weighted particles at the end, `history` those at the last temperature and after every further round of moves
    (first axis). `base_share` is the ESS of importance sampling from the base, as a share of the draws. `betas` and `step_sizes`
    hold the first `num_levels` entries; `gradients` counts those of the target for each particle, with its values at draws from
    the base.
    """

    z: Float[Array, "particles dim"]
    history: Float[Array, "rounds particles dim"]
    log_Z_hat: Scalar
    base_share: Scalar
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
    """γ_β = base^{1-β} target^β from β = 0 to 1.

    Draws from the base need no moves, so there are `plan.draws` times as many: with more of them the first temperature can be
    higher, more of what the base seldom proposes is found, and the particles that go on have fewer ancestors in common.
    """
    ess_share, moves, extra, leaps, draws = plan
    key_start, key_first, key_levels = jax.random.split(key, 3)
    log_base, log_gamma = (lambda z: base.log_gamma(z) - base.log_Z), target.log_gamma

    def log_ratios(z):
        log_ratio = jax.vmap(lambda z: log_gamma(z) - log_base(z))(z)
        return jnp.where(jnp.isnan(log_ratio), _NOTHING, jnp.clip(log_ratio, _NOTHING, -_NOTHING))

    def reweight(key, z, beta, share):
        """The next temperature, particles for it, the factor of Ẑ that it brings, and the share that β = 1 would keep."""
        log_ratio = log_ratios(z)
        new = next_beta(beta, log_ratio, share)
        log_w = (new - beta) * log_ratio
        picks = systematic(jax.random.uniform(key), normalise(log_w), num_particles)
        return new, z[picks], log_Z_hat(log_w), ess((1 - beta) * log_ratio) / z.shape[0]

    def move_all(key, z, log_density, root, step_size):
        one = lambda k, x: hamiltonian_step(k, x, log_density, step_size, root, leaps)  # noqa: E731
        moved = jax.vmap(one)(jax.random.split(key, num_particles), z)
        rate = jnp.sum(moved.acceptance * moved.tuned) / jnp.maximum(jnp.sum(moved.tuned), 1)
        return moved.z, step_size * jnp.exp(rate - _ACCEPTANCE), rate

    def go_on(state):
        return state["rounds"] <= extra

    def level(state):
        """Moves at this temperature, and on to the next; after the last one, moves only."""
        z, beta, k = state["z"], state["beta"], state["level"]
        key_moves, key_resample = jax.random.split(jax.random.fold_in(key_levels, k + state["rounds"]))
        root = whiten(z)[1]
        density = lambda z: (1 - beta) * log_base(z) + beta * log_gamma(z)  # noqa: E731

        def move(carry, key):
            z, step_size, rate = move_all(key, carry[0], density, root, carry[1])
            return (z, step_size), rate

        (z, step_size), rates = jax.lax.scan(move, (z, state["step_size"]), jax.random.split(key_moves, moves))
        over = jnp.logical_or(beta >= 1, k >= MAX_LEVELS)
        new, picked, factor, _ = reweight(key_resample, z, beta, ess_share)
        return {
            "z": jnp.where(over, z, picked),
            "beta": jnp.where(over, beta, new),
            "level": jnp.where(over, k, k + 1),
            "rounds": state["rounds"] + over,
            "history": state["history"].at[jnp.where(over, state["rounds"], 0)].set(z),
            "log_Z": state["log_Z"] + jnp.where(over, 0.0, factor),
            "step_size": step_size,
            "betas": jnp.where(over, state["betas"], state["betas"].at[k].set(new)),
            "step_sizes": state["step_sizes"].at[k - 1].set(step_size),
            "rate": jnp.mean(rates),
        }

    drawn = jax.vmap(base.sample)(jax.random.split(key_start, draws * num_particles))
    zero, none = jnp.zeros((), drawn.dtype), jnp.zeros((), jnp.int32)
    # More draws than particles: an ESS of twice their number is enough for the first temperature.
    beta, z, factor, base_share = reweight(key_first, drawn, zero, 2 / draws if draws > 2 else ess_share)
    start = {
        "z": z,
        "beta": beta,
        "level": none + 1,
        "rounds": none,
        "history": jnp.zeros((extra + 1, *z.shape), z.dtype),
        "log_Z": factor,
        "step_size": zero + step_size,
        "betas": jnp.ones(MAX_LEVELS, z.dtype).at[0].set(beta),
        "step_sizes": jnp.zeros(MAX_LEVELS, z.dtype),
        "rate": zero,
    }
    end = jax.lax.while_loop(go_on, level, start)
    return Tempering(
        end["z"],
        end["history"],
        end["log_Z"],
        base_share,
        end["beta"],
        end["level"],
        end["betas"],
        end["step_sizes"],
        end["step_size"],
        whiten(end["z"])[1],
        end["rate"],
        (end["level"] + extra) * moves * (leaps + 1) + draws,
    )
