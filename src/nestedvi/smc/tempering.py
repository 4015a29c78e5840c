"""Tempered SMC: from a base q_1 to a target γ along γ_β = q_1^{1-β} γ^β.

An adaptive run finds its temperatures, metrics and step sizes from its own particles: each
temperature keeps a given share of the effective sample size. Its Ẑ is therefore only nearly
unbiased. What it found can be kept (`Tuned`) and followed by fresh particles in independent
batches: their Ẑ is unbiased. Both are one loop, on the host, and the move is an argument. What is
compiled is one program that draws and one that moves a piece of the particles, whatever happens in
between.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, in_pieces
from nestedvi.fitting.draws import draw_weighted, weigh
from nestedvi.particles.resampling import systematic
from nestedvi.particles.weights import ess, log_Z_hat, normalise
from nestedvi.paths.annealing import log_geometric
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.guides import MAX_LEVELS, Adapting, Following, Plan, Tuned, next_beta
from nestedvi.smc.moves import AbstractMove, HamiltonianMove, Moved

__all__ = ["MAX_LEVELS", "Plan", "Tempering", "Tuned", "follow", "next_beta", "tempering"]

# A particle whose own acceptance is below this is stuck.
_REFUSED = 0.1
_HAMILTONIAN = HamiltonianMove()


class Tempering(NamedTuple):
    """A run from a base to the target.

    `z` are particles at the end and `log_w` their log weights, batch after batch: Ẑ of a batch is
    the mean of its weights. An adaptive run is one batch of equal weights. `history` are the
    particles at the last temperature and after every further round of moves (first axis).
    `base_share` is the ESS of importance sampling from the base, as a share of the draws, and
    `drawn_log_w` are the draws' weights for the first temperature. `log_ratios` are log γ(z) −
    log q_1(z) at draws from the base and, after the moves, at each temperature. `log_Z_variance` is
    what the weights' spread at each temperature adds up to: the variance of `log_Z_hat` if moves
    forget where particles came from. `stuck` is the share of particles for which moves of the tuned
    size were, in the last round, all but sure to be refused. `origins` counts, for each batch, the
    draws from the base that the particles descend from. `gradients` and `values` are what was asked
    of the target for each particle.
    """

    z: Float[np.ndarray, "particles dim"]
    log_w: Float[np.ndarray, "batches particles_of_batch"]
    history: Float[np.ndarray, "rounds particles dim"]
    log_Z_variance: float
    base_share: float
    drawn_log_w: Float[np.ndarray, " draws"]
    tuned: Tuned
    log_ratios: Float[np.ndarray, "1+levels particles"]
    step_size: float
    root: Float[np.ndarray, "dim dim"]
    stuck: float
    origins: Int[np.ndarray, " batches"]
    gradients: int
    values: float

    @property
    def log_Z_hats(self) -> Float[np.ndarray, " batches"]:
        """log Ẑ of every batch."""
        return log_Z_hat(self.log_w)

    @property
    def log_Z_hat(self) -> float:
        """log of the mean Ẑ."""
        return float(log_Z_hat(self.log_Z_hats))

    @property
    def betas(self) -> Float[np.ndarray, " levels"]:
        return self.tuned.betas

    @property
    def beta(self) -> float:
        """The temperature that it reached."""
        return float(self.tuned.betas[-1])

    @property
    def num_levels(self) -> int:
        """How many temperatures it took."""
        return len(self.betas)


@eqx.filter_jit
def _move(
    base: AbstractSampleable,
    target: AbstractDensity,
    move: AbstractMove,
    noise: Any,
    z: Float[Array, "piece dim"],
    beta: Scalar,
    step_size: Scalar,
    root: Float[Array, "dim dim"],
) -> Moved:
    """A move of every particle at a temperature."""
    base, target = base.precomputed(), target.precomputed()

    def log_density(z):
        return log_geometric(beta, base.log_gamma(z) - base.log_Z, target.log_gamma(z))

    return jax.vmap(lambda noise, z: move(noise, z, log_density, step_size, root))(noise, z)


class _Population:
    """Particles of independent batches on their way: `z` and log ratios, batch after batch, log
    weights a batch a row, and the draw that each particle descends from.
    """

    def __init__(
        self, base: AbstractSampleable, target: AbstractDensity, move: AbstractMove, piece: int
    ):
        self.base, self.target, self.move, self.piece = base, target, move, piece
        self.variance, self.stuck, self.counted = 0.0, 0.0, 0

    def draw(self, key: Key, num: int, batches: int, draws: int) -> None:
        """`draws` draws from the base for each of `num` particles."""
        drawn, self.log_ratio = draw_weighted(key, self.base, self.target, draws * num)
        self.z, self.origin = drawn, np.arange(len(drawn))
        self.log_w = np.zeros((batches, len(drawn) // batches))

    def reweight(self, rise: float) -> None:
        """To a temperature that is higher by `rise`."""
        self.log_w = self.log_w + rise * self.log_ratio.reshape(self.log_w.shape)

    def resample(self, rng: np.random.Generator, per_batch: int, below: float) -> None:
        """Batches whose ESS is below a share, systematically; all if their number changes."""
        batches, before = self.log_w.shape
        picks = np.arange(batches * before).reshape(batches, before)[:, :per_batch].copy()
        log_w = self.log_w[:, :per_batch].copy()
        for b, weights in enumerate(self.log_w):
            size = float(ess(weights))
            if before != per_batch or size < below * before:
                kept = systematic(rng.uniform(), normalise(weights), per_batch)
                picks[b], log_w[b] = b * before + kept, log_Z_hat(weights)
                self.variance += (1 / max(size, 1.0) - 1 / before) / batches**2
        rows = picks.reshape(-1)
        self.z, self.log_ratio, self.origin = (
            x[rows] for x in (self.z, self.log_ratio, self.origin)
        )
        self.log_w = log_w

    def step(
        self, key: Key, beta: float, count: int, size: float, root: np.ndarray, rate: float
    ) -> float:
        """`count` moves at a temperature, and the step size that they were tuned to, at `rate`:
        zero leaves it alone.
        """
        rng, num, dtype = generator(key), len(self.z), self.z.dtype
        fixed = (jnp.asarray(beta, dtype), jnp.asarray(root, dtype))
        seen = np.zeros((2, num))
        for _ in range(count):
            moved = [self._move_piece(rng, piece, size, *fixed) for piece in self._pieces()]
            z, acceptance, tuned = (
                np.concatenate([np.asarray(x) for x in part])[:num]
                for part in zip(*moved, strict=True)
            )
            self.z = z
            now = np.stack([tuned * acceptance, tuned]).astype(np.float64)
            accepted = now[0].sum() / max(now[1].sum(), 1)
            size *= float(np.exp(rate * (accepted - self.move.acceptance)))
            seen += now
        self.counted += count
        self.log_ratio = weigh(self.base, self.target, self.z)
        self.stuck = float(np.mean((seen[1] > 1) & (seen[0] < _REFUSED * seen[1])))
        return size

    def _pieces(self) -> list[np.ndarray]:
        return in_pieces(self.z, self.piece)

    def _move_piece(
        self, rng: np.random.Generator, z: np.ndarray, size: float, beta: Scalar, root: Array
    ) -> Moved:
        noise = self.move.noise(rng, z.shape[0], z.shape[1], z.dtype)
        step_size = jnp.asarray(size, z.dtype)
        return _move(
            self.base, self.target, self.move, noise, jnp.asarray(z), beta, step_size, root
        )


def _run(
    key: Key, now: _Population, guide: Adapting | Following, num: int, batches: int, draws: int
) -> Tempering:
    """From the base to the last temperature that the guide names."""
    keys = split_on_host(key, 2)
    rng, beta, move = generator(keys[0]), 0.0, now.move
    key_draw, *keys = split_on_host(keys[1], 1 + 2 * MAX_LEVELS)
    now.draw(key_draw, num, batches, draws)
    base_share = float(ess(now.log_ratio)) / len(now.log_ratio)
    ratios, history = [now.log_ratio[:num]], [now.z]
    drawn_log_w: np.ndarray | None = None
    while (new := guide.temperature(beta, now.log_ratio)) is not None:
        if new > beta or drawn_log_w is None:
            now.reweight(new - beta)
            drawn_log_w = now.log_w.reshape(-1) if drawn_log_w is None else drawn_log_w
            now.resample(rng, num // batches, guide.resample_below)
            history.clear()
        else:
            ratios.pop()
        beta = new
        count, size, root = guide.tune(beta, now.z)
        if count:
            guide.learn(now.step(keys.pop(), beta, count, size, root, guide.rate))
        ratios.append(now.log_ratio)
        history.append(now.z)
    tuned = guide.tuned()
    assert drawn_log_w is not None
    return Tempering(
        z=now.z,
        log_w=now.log_w,
        history=np.stack(history),
        log_Z_variance=now.variance,
        base_share=base_share,
        drawn_log_w=drawn_log_w,
        tuned=tuned,
        log_ratios=np.stack(ratios),
        step_size=float(tuned.step_sizes[-1]),
        root=move.root(now.z.astype(np.float64)) if guide.rate else tuned.roots[-1],
        stuck=now.stuck,
        origins=np.array([len(np.unique(row)) for row in now.origin.reshape(batches, -1)]),
        gradients=now.counted * move.gradients,
        # One for each draw, and one at each temperature or later round: the weights.
        values=draws + len(ratios) - 2 + len(history) + now.counted * move.values,
    )


def tempering(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    plan: Plan,
    *,
    num_particles: int,
    move: AbstractMove = _HAMILTONIAN,
    step_size: float | None = None,
    piece: int | None = None,
) -> Tempering:
    """An adaptive run from β = 0 to 1.

    Draws from the base need no moves, so there are `plan.draws` times as many: with more of them
    the first temperature can be higher, more of what the base seldom proposes is found, and the
    particles that go on have fewer ancestors in common. Moves are compiled for `piece` particles at
    once, all of them unless it is given.
    """
    now = _Population(base, target, move, piece or num_particles)
    return _run(key, now, Adapting(plan, move, step_size), num_particles, 1, plan.draws)


def follow(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    tuned: Tuned,
    *,
    num_particles: int,
    batches: int,
    draws: int = 1,
    resample_below: float = 0.5,
    move: AbstractMove = _HAMILTONIAN,
    piece: int | None = None,
) -> Tempering:
    """Fresh particles in independent batches along temperatures that are given: nothing adapts to
    them, so that the Ẑ of every batch is unbiased. `num_particles` is a multiple of `batches`. A
    batch is resampled when its ESS is below a share, always if that is above one.
    """
    if num_particles % batches:
        raise ValueError(
            f"Batches are of one size: {num_particles} particles do not make {batches} of them."
        )
    now = _Population(base, target, move, piece or num_particles)
    return _run(key, now, Following(tuned, resample_below), num_particles, batches, draws)
