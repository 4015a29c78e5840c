"""Adaptive tempered SMC: from a base q_1 to a target γ along γ_β = q_1^{1-β} γ^β.

Each temperature keeps a given share of the effective sample size, resampling is systematic, and the
move is an argument. The loop over temperatures runs on the host: what is compiled is one program
that draws and one that moves, whatever happens in between. It learns nothing, and since
temperatures, metric and step sizes come from the same particles, Ẑ is only nearly unbiased: for a
reported estimate freeze them first.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.fitting.draws import draw_weighted, log_ratios
from nestedvi.particles.resampling import systematic
from nestedvi.particles.weights import ess, log_Z_hat, normalise
from nestedvi.paths.annealing import log_geometric
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.moves import AbstractMove, HamiltonianMove

__all__ = ["MAX_LEVELS", "Plan", "Tempering", "next_beta", "tempering"]

MAX_LEVELS = 200
# A particle whose own acceptance is below this is stuck.
_REFUSED = 0.1
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
    the base, as a share of the draws. `betas` and `step_sizes` have an entry a temperature;
    `log_ratios` are log γ(z) − log q_1(z) at draws from the base and, after the moves, at each of
    those temperatures. `log_Z_variance` is what the weights' spread at each temperature adds up to:
    the variance of `log_Z_hat` if moves forget where particles came from. `stuck` is the share of
    particles for which moves of the tuned size were, in the last round, all but sure to be refused.
    `origins` counts the draws from the base that the particles descend from. `gradients` and
    `values` are what was asked of the target for each particle.
    """

    z: Float[Array, "particles dim"]
    history: Float[Array, "rounds particles dim"]
    log_Z_hat: float
    log_Z_variance: float
    base_share: float
    beta: float
    betas: Float[np.ndarray, " levels"]
    step_sizes: Float[np.ndarray, " levels"]
    log_ratios: Float[np.ndarray, "1+levels particles"]
    step_size: float
    root: Float[np.ndarray, "dim dim"]
    stuck: float
    origins: int
    gradients: int
    values: float

    @property
    def num_levels(self) -> int:
        """How many temperatures it took."""
        return len(self.betas)


def next_beta(beta: float, log_ratio: np.ndarray, share: float) -> float:
    """The largest β' ≤ 1 whose increments (β' − β) log_ratio keep an ESS of `share` of the
    particles, by bisection.
    """
    wanted = share * len(log_ratio)
    if ess((1 - beta) * log_ratio) >= wanted:
        return 1.0
    low, high = beta, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if ess((middle - beta) * log_ratio) >= wanted:
            low = middle
        else:
            high = middle
    return max(low, beta + 1e-6)


@eqx.filter_jit
def _move(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    move: AbstractMove,
    z: Float[Array, "particles dim"],
    beta: Scalar,
    step_size: Scalar,
    root: Float[Array, "dim dim"],
    count: Any,
) -> Any:
    """The particles after `count` moves each, the step size that the moves were tuned to, the share
    of stuck particles, and the particles' log ratios.
    """
    num, base, target = z.shape[0], base.precomputed(), target.precomputed()

    def log_density(z):
        return log_geometric(beta, base.log_gamma(z) - base.log_Z, target.log_gamma(z))

    def one(key, z, size):
        return move(key, z, log_density, size, root)

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
    stuck = jnp.mean((tuned > 1) & (accepted < _REFUSED * tuned), dtype=z.dtype)
    return z, step_size, stuck, log_ratios(base, target, z)


class _Weighted(NamedTuple):
    """A reweighting: the next temperature, who goes on, and what it brings to log Ẑ."""

    beta: float
    picks: np.ndarray
    log_factor: float
    variance: float


def _reweight(
    rng: np.random.Generator, beta: float, log_ratio: np.ndarray, share: float, num: int
) -> _Weighted:
    new = next_beta(beta, log_ratio, share)
    log_w = (new - beta) * log_ratio
    picks = systematic(rng.uniform(), normalise(log_w), num)
    variance = 1 / max(float(ess(log_w)), 1.0) - 1 / len(log_w)
    return _Weighted(new, picks, float(log_Z_hat(log_w)), variance)


def tempering(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    plan: Plan,
    *,
    num_particles: int,
    move: AbstractMove = _HAMILTONIAN,
    step_size: float | None = None,
) -> Tempering:
    """Runs from β = 0 to 1.

    Draws from the base need no moves, so there are `plan.draws` times as many: with more of them
    the first temperature can be higher, more of what the base seldom proposes is found, and the
    particles that go on have fewer ancestors in common.
    """
    keys = split_on_host(key, MAX_LEVELS + plan.extra + 2)
    rng = generator(keys[0])
    drawn, log_w = draw_weighted(keys[1], base, target, plan.draws * num_particles)
    log_ratio = np.asarray(log_w, np.float64)
    base_share = float(ess(log_ratio)) / len(log_ratio)
    # More draws than particles: an ESS of twice their number is enough for the first temperature.
    # Still more make it more certain, not higher: moves at high temperatures are worth having.
    share = max(2 / plan.draws, 1 / 12) if plan.draws > 2 else plan.ess_share
    rung = _reweight(rng, 0.0, log_ratio, share, num_particles)
    z, origin, dtype = drawn[rung.picks], rung.picks, drawn.dtype
    size = move.first_step_size(z.shape[1]) if step_size is None else step_size
    log_Z, variance, moves = rung.log_factor, rung.variance, 0
    betas, ratios = [rung.beta], [log_ratio[:num_particles]]
    sizes: list[float] = []
    history: list[Any] = []
    while True:
        beta, k = betas[-1], len(betas)
        count = 2 * plan.moves if k <= plan.hot and beta < 1 else plan.moves
        root = move.root(np.asarray(z, np.float64))
        z, size, stuck, log_w = _move(
            keys[1 + k + len(history)],
            base,
            target,
            move,
            z,
            jnp.asarray(beta, dtype),
            jnp.asarray(size, dtype),
            jnp.asarray(root, dtype),
            count,
        )
        log_ratio, moves = np.asarray(log_w, np.float64), moves + count
        sizes[k - 1 :], ratios[k:] = [float(size)], [log_ratio]
        if beta >= 1 or k >= MAX_LEVELS:
            history.append(z)
            if len(history) > plan.extra:
                break
            continue
        rung = _reweight(rng, beta, log_ratio, plan.ess_share, num_particles)
        z, origin = z[rung.picks], origin[rung.picks]
        log_Z, variance = log_Z + rung.log_factor, variance + rung.variance
        betas.append(rung.beta)
    return Tempering(
        z=z,
        history=jnp.stack(history),
        log_Z_hat=log_Z,
        log_Z_variance=variance,
        base_share=base_share,
        beta=betas[-1],
        betas=np.array(betas),
        step_sizes=np.array(sizes),
        log_ratios=np.stack(ratios),
        step_size=float(size),
        root=move.root(np.asarray(z, np.float64)),
        stuck=float(stuck),
        origins=len(np.unique(origin)),
        gradients=moves * move.gradients,
        # One for each draw, and one at each temperature or later round: the weights.
        values=plan.draws + len(betas) - 1 + len(history) + moves * move.values,
    )
