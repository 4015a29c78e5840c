"""Adaptive tempered SMC: from a base q_1 to a target γ along γ_β = q_1^{1-β} γ^β.

Each temperature keeps a given share of the effective sample size, resampling is systematic, and the
move is an argument. It learns nothing, and since temperatures, metric and step sizes come from the
same particles, Ẑ is only nearly unbiased: for a reported estimate freeze them first.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestedvi._types import Ancestors, Key, LogWeights, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.particles.genealogy import num_distinct
from nestedvi.particles.resampling import systematic
from nestedvi.particles.weights import ess, log_Z_hat, normalise
from nestedvi.paths.annealing import log_geometric
from nestedvi.smc.moves import AbstractMove, HamiltonianMove

__all__ = ["MAX_LEVELS", "Plan", "Tempering", "next_beta", "tempering"]

MAX_LEVELS = 200
# A particle whose own acceptance is below this is stuck.
_REFUSED = 0.1
# A log weight of zero mass as a number that can be multiplied with β = 0.
_NO_MASS = -1e30
_HAMILTONIAN = HamiltonianMove()


class Plan(NamedTuple):
    """How a run goes: the share of the ESS that a temperature keeps, moves at each temperature,
    rounds of moves after the last temperature, draws from the base for each particle that goes on,
    and the number of hottest temperatures with twice the moves: modes that are far apart later are
    still joined there."""

    ess_share: float
    moves: int
    extra: int = 0
    draws: int = 1
    hot: int = 0


class Tempering(NamedTuple):
    """A run from a base to the target.

    `z` are equally weighted particles at the end, `history` those at the last temperature and after
    every further round of moves (first axis). `base_share` is the ESS of importance sampling from
    the base, as a share of the draws. `betas` and `step_sizes` hold the first `num_levels` entries;
    `log_ratios` are log γ(z) − log q_1(z) at draws from the base and, after the moves, at each of
    those temperatures. `log_Z_variance` is what the weights' spread at each temperature adds up to:
    the variance of `log_Z_hat` if moves forget where particles came from. `stuck` is the share of
    particles for which moves of the tuned size were, in the last round, all but sure to be refused.
    `origins` counts the draws from the base that the particles descend from. `gradients` and
    `values` are what was asked of the target for each particle.
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
    values: Scalar


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


class _Bridge(eqx.Module):
    """γ_β between a normalised base and the target."""

    base: AbstractSampleable
    target: AbstractDensity

    def log_base(self, z: Float[Array, " dim"]) -> Scalar:
        return self.base.log_gamma(z) - self.base.log_Z

    def log_density(self, beta: Scalar, z: Float[Array, " dim"]) -> Scalar:
        return log_geometric(beta, self.log_base(z), self.target.log_gamma(z))

    def log_ratios(self, z: Float[Array, "particles dim"]) -> LogWeights:
        log_ratio = jax.vmap(lambda z: self.target.log_gamma(z) - self.log_base(z))(z)
        return jnp.where(jnp.isnan(log_ratio), _NO_MASS, jnp.clip(log_ratio, _NO_MASS, -_NO_MASS))


class _Rung(NamedTuple):
    """The next temperature, which particles go on to it, the log of the factor that it brings to Ẑ
    with that log's variance, and the log ratios it was chosen from.
    """

    beta: Scalar
    picks: Ancestors
    log_factor: Scalar
    variance: Scalar
    log_ratio: LogWeights


def _reweight(
    key: Key, bridge: _Bridge, z: Float[Array, "draws dim"], beta: Scalar, share: float, num: int
) -> _Rung:
    log_ratio = bridge.log_ratios(z)
    new = next_beta(beta, log_ratio, share)
    log_w = (new - beta) * log_ratio
    picks = systematic(jax.random.uniform(key), normalise(log_w), num)
    variance = 1 / jnp.maximum(ess(log_w), 1) - 1 / log_w.shape[0]
    return _Rung(new, picks, log_Z_hat(log_w), variance, log_ratio)


def _rejuvenate(
    key: Key,
    bridge: _Bridge,
    move: AbstractMove,
    z: Float[Array, "particles dim"],
    beta: Scalar,
    step_size: Scalar,
    count: Any,
) -> tuple[Float[Array, "particles dim"], Scalar, Scalar]:
    """The particles after `count` moves each, the step size that the moves were tuned to, and the
    share of stuck particles.
    """
    num, root = z.shape[0], move.root(z)

    def one(key, z, size):
        return move(key, z, lambda z: bridge.log_density(beta, z), size, root)

    def step(i, carry):
        z, step_size, seen = carry
        keys = jax.random.split(jax.random.fold_in(key, i), num)
        moved = jax.vmap(one, (0, 0, None))(keys, z, step_size)
        now = jnp.stack([moved.tuned * moved.acceptance, moved.tuned.astype(z.dtype)])
        accepted, tuned = jnp.sum(now, axis=1)
        factor = jnp.exp(accepted / jnp.maximum(tuned, 1) - move.acceptance)
        return moved.z, step_size * factor, seen + now

    start = z, step_size, jnp.zeros((2, num), z.dtype)
    z, step_size, (accepted, tuned) = jax.lax.fori_loop(0, count, step, start)
    stuck = (tuned > 1) & (accepted < _REFUSED * tuned)
    return z, step_size, jnp.mean(stuck, dtype=z.dtype)


class _State(NamedTuple):
    """Between temperatures. `level` counts temperatures, `rounds` those of moves after the last."""

    z: Float[Array, "particles dim"]
    origin: Ancestors
    beta: Scalar
    level: Int[Array, ""]
    rounds: Int[Array, ""]
    history: Float[Array, "rounds particles dim"]
    log_Z: Scalar
    variance: Scalar
    step_size: Scalar
    betas: Float[Array, " levels"]
    step_sizes: Float[Array, " levels"]
    log_ratios: Float[Array, "1+levels particles"]
    stuck: Scalar
    moves: Int[Array, ""]


@eqx.filter_jit
def tempering(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    plan: Plan,
    *,
    num_particles: int,
    move: AbstractMove = _HAMILTONIAN,
    step_size: Scalar | float | None = None,
) -> Tempering:
    """Runs from β = 0 to 1.

    Draws from the base need no moves, so there are `plan.draws` times as many: with more of them
    the first temperature can be higher, more of what the base seldom proposes is found, and the
    particles that go on have fewer ancestors in common.
    """
    key_start, key_first, key_levels = jax.random.split(key, 3)
    bridge = _Bridge(base.precomputed(), target.precomputed())
    drawn = jax.vmap(base.sample)(jax.random.split(key_start, plan.draws * num_particles))
    zero, none = jnp.zeros((), drawn.dtype), jnp.zeros((), jnp.int32)
    # More draws than particles: an ESS of twice their number is enough for the first temperature.
    # Still more make it more certain, not higher: moves at high temperatures are worth having.
    share = max(2 / plan.draws, 1 / 12) if plan.draws > 2 else plan.ess_share
    first = _reweight(key_first, bridge, drawn, zero, share, num_particles)

    def unfinished(state: _State):
        return state.rounds <= plan.extra

    def level(state: _State) -> _State:
        """Moves at this temperature, and on to the next; after the last one, moves only."""
        beta, k = state.beta, state.level
        here = jax.random.fold_in(key_levels, k + state.rounds)
        key_moves, key_resample = jax.random.split(here)
        count = jnp.where((k <= plan.hot) & (beta < 1), 2 * plan.moves, plan.moves)
        z, step_size, stuck = _rejuvenate(
            key_moves, bridge, move, state.z, beta, state.step_size, count
        )
        over = jnp.logical_or(beta >= 1, k >= MAX_LEVELS)
        rung = _reweight(key_resample, bridge, z, beta, plan.ess_share, num_particles)
        return _State(
            z=jnp.where(over, z, z[rung.picks]),
            origin=jnp.where(over, state.origin, state.origin[rung.picks]),
            beta=jnp.where(over, beta, rung.beta),
            level=jnp.where(over, k, k + 1),
            rounds=state.rounds + over,
            history=state.history.at[jnp.where(over, state.rounds, 0)].set(z),
            log_Z=state.log_Z + jnp.where(over, 0.0, rung.log_factor),
            variance=state.variance + jnp.where(over, 0.0, rung.variance),
            step_size=step_size,
            betas=jnp.where(over, state.betas, state.betas.at[k].set(rung.beta)),
            step_sizes=state.step_sizes.at[k - 1].set(step_size),
            log_ratios=state.log_ratios.at[k].set(rung.log_ratio),
            stuck=stuck,
            moves=state.moves + count,
        )

    z = drawn[first.picks]
    size = move.first_step_size(z.shape[1]) if step_size is None else step_size
    log_ratios = jnp.zeros((MAX_LEVELS + 1, num_particles), z.dtype)
    start = _State(
        z=z,
        origin=first.picks,
        beta=first.beta,
        level=none + 1,
        rounds=none,
        history=jnp.zeros((plan.extra + 1, *z.shape), z.dtype),
        log_Z=first.log_factor,
        variance=first.variance,
        step_size=zero + size,
        betas=jnp.ones(MAX_LEVELS, z.dtype).at[0].set(first.beta),
        step_sizes=jnp.zeros(MAX_LEVELS, z.dtype),
        log_ratios=log_ratios.at[0].set(first.log_ratio[:num_particles]),
        stuck=zero,
        moves=none,
    )
    end = jax.lax.while_loop(unfinished, level, start)
    return Tempering(
        z=end.z,
        history=end.history,
        log_Z_hat=end.log_Z,
        log_Z_variance=end.variance,
        base_share=ess(first.log_ratio) / drawn.shape[0],
        beta=end.beta,
        num_levels=end.level,
        betas=end.betas,
        step_sizes=end.step_sizes,
        log_ratios=end.log_ratios,
        step_size=end.step_size,
        root=move.root(end.z),
        stuck=end.stuck,
        origins=num_distinct(end.origin, drawn.shape[0]),
        gradients=end.moves * move.gradients,
        # One for each draw, and one at each temperature or later round: the weights.
        values=plan.draws + end.level - 1 + end.rounds + end.moves * move.values,
    )
