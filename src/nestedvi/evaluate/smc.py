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
from nestedvi.train.em import bulk_root

__all__ = ["MAX_LEVELS", "Plan", "Tempering", "tempering"]

MAX_LEVELS = 200
# The mean acceptance that steps are tuned to; a particle whose own is below the second number is stuck.
_ACCEPTANCE, _REFUSED = 0.8, 0.1
# A weight of zero as a number that can be multiplied with β = 0.
_NOTHING = -1e30


class Plan(NamedTuple):
    """How a run goes: the ESS that a temperature leaves, moves at each temperature, how many rounds of moves come after the last
    temperature, leapfrog steps of a move, how many draws from the base there are for each particle that goes on, and at how many
    temperatures, the hottest ones, there are twice the moves: what is far apart later is still joined there."""

    ess_share: float
    moves: int
    extra: int = 0
    leaps: int = 10
    draws: int = 1
    hot: int = 0


class Tempering(NamedTuple):
    """A run from a base to the target.

    `z` are equally weighted particles at the end, `history` those at the last temperature and after every further round of moves
    (first axis). `base_share` is the ESS of importance sampling from the base, as a share of the draws. `betas` and `step_sizes`
    hold the first `num_levels` entries; `log_ratios` are log γ(z) − log q_1(z) at draws from the base and, after the moves, at
    each of those temperatures. `log_Z_variance` is what the weights' spread at each temperature adds up to: the variance of
    `log_Z_hat` if moves forget where particles came from. `stuck` is the share of particles for which moves of the tuned size
    were, in the last round, all but sure to be refused. `origins` counts the draws from the base that the particles
    descend from. `gradients` and `values` are what was asked of the target for each particle.
    """

    z: Float[Array, "particles dim"]
    history: Float[Array, "rounds particles dim"]
    log_Z_hat: Scalar
    log_Z_variance: Scalar
    base_share: Scalar
    beta: Scalar
    num_levels: Int[Array, ""]
    betas: Float[Array, " levels"]
    step_sizes: Float[Array, " levels"]
    log_ratios: Float[Array, "1+levels particles"]
    step_size: Scalar
    root: Float[Array, "dim dim"]
    stuck: Scalar
    origins: Int[Array, ""]
    gradients: Int[Array, ""]
    values: Int[Array, ""]


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
    ess_share, moves, extra, leaps, draws, hot = plan
    key_start, key_first, key_levels = jax.random.split(key, 3)
    log_base, log_gamma = (lambda z: base.log_gamma(z) - base.log_Z), target.log_gamma

    def log_ratios(z):
        log_ratio = jax.vmap(lambda z: log_gamma(z) - log_base(z))(z)
        return jnp.where(jnp.isnan(log_ratio), _NOTHING, jnp.clip(log_ratio, _NOTHING, -_NOTHING))

    def reweight(key, z, beta, share):
        """The next temperature, which particles go on to it, the log of the factor that it brings to Ẑ with its variance, and the
        log ratios it was found from."""
        log_ratio = log_ratios(z)
        new = next_beta(beta, log_ratio, share)
        log_w = (new - beta) * log_ratio
        picks = systematic(jax.random.uniform(key), normalise(log_w), num_particles)
        variance = 1 / jnp.maximum(ess(log_w), 1) - 1 / log_w.shape[0]
        return new, picks, jnp.stack([log_Z_hat(log_w), variance]), log_ratio

    def move_all(key, z, log_density, root, step_size):
        one = lambda k, x: hamiltonian_step(k, x, log_density, step_size, root, leaps)  # noqa: E731
        moved = jax.vmap(one)(jax.random.split(key, num_particles), z)
        seen = jnp.stack([moved.tuned * moved.acceptance, moved.tuned])
        accepted, tuned = jnp.sum(seen, axis=1)
        return moved.z, step_size * jnp.exp(accepted / jnp.maximum(tuned, 1) - _ACCEPTANCE), seen

    def go_on(state):
        return state["rounds"] <= extra

    def level(state):
        """Moves at this temperature, and on to the next; after the last one, moves only."""
        z, beta, k = state["z"], state["beta"], state["level"]
        key_moves, key_resample = jax.random.split(jax.random.fold_in(key_levels, k + state["rounds"]))
        root = bulk_root(z)
        density = lambda z: (1 - beta) * log_base(z) + beta * log_gamma(z)  # noqa: E731

        def move(i, carry):
            z, step_size, seen = move_all(jax.random.fold_in(key_moves, i), carry[0], density, root, carry[1])
            return z, step_size, carry[2] + seen

        count = jnp.where((k <= hot) & (beta < 1), 2 * moves, moves)
        z, step_size, seen = jax.lax.fori_loop(0, count, move, (z, state["step_size"], jnp.zeros((2, num_particles), z.dtype)))
        accepted, tuned = seen
        over = jnp.logical_or(beta >= 1, k >= MAX_LEVELS)
        new, picks, factor, log_ratio = reweight(key_resample, z, beta, ess_share)
        return {
            "z": jnp.where(over, z, z[picks]),
            "origin": jnp.where(over, state["origin"], state["origin"][picks]),
            "beta": jnp.where(over, beta, new),
            "level": jnp.where(over, k, k + 1),
            "rounds": state["rounds"] + over,
            "history": state["history"].at[jnp.where(over, state["rounds"], 0)].set(z),
            "log_Z": state["log_Z"] + jnp.where(over, 0.0, factor),
            "step_size": step_size,
            "betas": jnp.where(over, state["betas"], state["betas"].at[k].set(new)),
            "step_sizes": state["step_sizes"].at[k - 1].set(step_size),
            "log_ratios": state["log_ratios"].at[k].set(log_ratio),
            "stuck": jnp.mean((tuned > 1) & (accepted < _REFUSED * tuned)),
            "moves": state["moves"] + count,
        }

    drawn = jax.vmap(base.sample)(jax.random.split(key_start, draws * num_particles))
    zero, none = jnp.zeros((), drawn.dtype), jnp.zeros((), jnp.int32)
    # More draws than particles: an ESS of twice their number is enough for the first temperature. Still more draws make it more
    # certain, not higher: moves at high temperatures are worth having.
    beta, picks, factor, log_ratio = reweight(key_first, drawn, zero, max(2 / draws, 1 / 12) if draws > 2 else ess_share)
    z = drawn[picks]
    start = {
        "z": z,
        "origin": picks,
        "beta": beta,
        "level": none + 1,
        "rounds": none,
        "history": jnp.zeros((extra + 1, *z.shape), z.dtype),
        "log_Z": factor,
        "step_size": zero + step_size,
        "betas": jnp.ones(MAX_LEVELS, z.dtype).at[0].set(beta),
        "step_sizes": jnp.zeros(MAX_LEVELS, z.dtype),
        "log_ratios": jnp.zeros((MAX_LEVELS + 1, num_particles), z.dtype).at[0].set(log_ratio[:num_particles]),
        "stuck": zero,
        "moves": none,
    }
    end = jax.lax.while_loop(go_on, level, start)
    return Tempering(
        end["z"],
        end["history"],
        end["log_Z"][0],
        end["log_Z"][1],
        ess(log_ratio) / drawn.shape[0],
        end["beta"],
        end["level"],
        end["betas"],
        end["step_sizes"],
        end["log_ratios"],
        end["step_size"],
        bulk_root(end["z"]),
        end["stuck"],
        jnp.sum(jnp.zeros(drawn.shape[0], jnp.int32).at[end["origin"]].set(1)),
        end["moves"] * (leaps + 1),
        # One for each draw, and one at each temperature or later round: the weights.
        draws + end["level"] - 1 + end["rounds"],
    )
