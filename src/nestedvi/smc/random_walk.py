"""Adaptive tempered SMC without learning: temperatures by an ESS rule, random-walk moves tuned from
the particles.

It gives reference values of log Z for targets of a few dimensions, from any density that can be
sampled exactly (a prior). The particles are arrays; γ_β = γ_1^{1-β} γ^β.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, LogWeights, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.particles.resampling import Systematic
from nestedvi.particles.weights import ess, log_Z_hat, normalise

__all__ = ["Tempered", "next_beta", "tempered_smc"]

_TARGET_ACCEPTANCE = 0.25


class Tempered(NamedTuple):
    """Equally weighted particles of the target, log Ẑ, how many temperatures it took, the last β (1
    unless it ran out of levels), and the acceptance rate of the last moves."""

    z: Float[Array, "particles dim"]
    log_Z_hat: Scalar
    num_levels: Int[Array, ""]
    beta: Scalar
    acceptance: Scalar


def next_beta(beta: Scalar, log_ratio: LogWeights, share: float) -> Scalar:
    """The largest β' ≤ 1 whose increments (β' − β) log_ratio keep an ESS of `share` of the
    particles, by bisection.
    """
    wanted = share * log_ratio.shape[0]

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        enough = ess((middle - beta) * log_ratio) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, 30, halve, (beta, jnp.ones_like(beta)))
    whole = ess((1 - beta) * log_ratio) >= wanted
    return jnp.where(whole, 1.0, jnp.maximum(low, beta + 1e-6))


def _identity(z: Any) -> Any:
    return z


def tempered_smc(
    key: Key,
    initial: AbstractSampleable,
    log_likelihood: Callable[[Float[Array, " dim"]], Scalar],
    *,
    num_particles: int = 1000,
    num_moves: int = 10,
    ess_share: float = 0.5,
    max_levels: int = 300,
    canonical: Callable[[Float[Array, " dim"]], Float[Array, " dim"]] = _identity,
) -> Tempered:
    """log ∫ q(z) L(z) dz for a normalised `initial` q and a function log L; pure, so that vmap runs
    many targets at once.

    `canonical` may map each particle to another point with the same q and L (sorted labels of a
    mixture): moves are tuned to the particles' covariance, which symmetric copies of one mode would
    blow up.
    """
    key_start, key_loop = jax.random.split(key)
    canonical_all = jax.vmap(canonical)
    z = canonical_all(jax.vmap(initial.sample)(jax.random.split(key_start, num_particles)))

    def log_prior(z):
        return jax.vmap(initial.log_gamma)(z) - initial.log_Z

    dim = z.shape[1]

    # A density of zero is a weight of zero, never NaN.
    def log_L(z):
        return jnp.nan_to_num(jax.vmap(log_likelihood)(z), nan=-jnp.inf, neginf=-jnp.inf)

    def go_on(carry):
        return jnp.logical_and(carry["beta"] < 1, carry["level"] < max_levels)

    def level(carry):
        z, log_l, beta = carry["z"], carry["log_l"], carry["beta"]
        new = next_beta(beta, log_l, ess_share)
        log_w = jnp.where(
            jnp.isneginf(log_l), -jnp.inf, (new - beta) * jnp.where(jnp.isneginf(log_l), 0.0, log_l)
        )
        here = jax.random.fold_in(key_loop, carry["level"])
        key_resample, key_moves = jax.random.split(here)
        picks = Systematic().ancestors(
            jax.random.uniform(key_resample, (num_particles,)), normalise(log_w)
        )
        z, log_l = z[picks], log_l[picks]
        covariance = jnp.cov(z.T).reshape(dim, dim)
        root = jnp.linalg.cholesky(
            covariance + (1e-6 * jnp.trace(covariance) / dim + 1e-10) * jnp.eye(dim, dtype=z.dtype)
        )

        def move(state, key_move):
            z, log_l, log_p, step = state
            key_noise, key_size, key_accept = jax.random.split(key_move, 3)
            # Sizes around the tuned one: heavy tails of the proposal help where the covariance fits
            # badly.
            size = step * jnp.exp(0.7 * jax.random.normal(key_size, (num_particles, 1)))
            proposal = canonical_all(
                z + size * (jax.random.normal(key_noise, z.shape, z.dtype) @ root.T)
            )
            log_l_new, log_p_new = log_L(proposal), log_prior(proposal)
            log_ratio = log_p_new - log_p + new * (log_l_new - log_l)
            accept = jnp.log(jax.random.uniform(key_accept, (num_particles,))) < log_ratio
            rate = jnp.mean(accept.astype(z.dtype))
            step = step * jnp.exp(rate - _TARGET_ACCEPTANCE)

            def pick(a, b):
                return jnp.where(accept.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)

            return (pick(proposal, z), pick(log_l_new, log_l), pick(log_p_new, log_p), step), rate

        start = z, log_l, log_prior(z), carry["step"]
        (z, log_l, _, step), rates = jax.lax.scan(
            move, start, jax.random.split(key_moves, num_moves)
        )
        return {
            "z": z,
            "log_l": log_l,
            "beta": new,
            "level": carry["level"] + 1,
            "log_Z": carry["log_Z"] + log_Z_hat(log_w),
            "step": step,
            "rate": jnp.mean(rates),
        }

    zero = jnp.zeros((), z.dtype)
    start = {
        "z": z,
        "log_l": log_L(z),
        "beta": zero,
        "level": jnp.zeros((), jnp.int32),
        "log_Z": zero,
        "step": zero + 2.38 / dim**0.5,
        "rate": zero,
    }
    end = jax.lax.while_loop(go_on, level, start)
    return Tempered(end["z"], end["log_Z"], end["level"], end["beta"], end["rate"])
