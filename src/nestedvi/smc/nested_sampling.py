"""Nested sampling as an SMC sampler: from a base q_1 to a target γ along rising thresholds ℓ,

    γ_ℓ(z) = q_1(z) · 1[log γ(z) − log q_1(z) > ℓ].

Along temperatures, particles must cross from a wide part to a narrow one of equal mass at some β,
and cannot: a first-order transition. Along thresholds a narrow part keeps the share that its volume
gives it, and grows as the wide part is left behind. Between two thresholds lies a shell, whose mass
is the share of particles that came so far times their mean weight γ / q_1 there; Z is the sum over
shells, and all shells' particles together are the target's.

As in `tempering`, a run finds thresholds, metrics and widths from its own particles; fresh
particles that follow it in independent batches have an unbiased Ẑ (Salomone et al. 2018). What
particles do at a threshold is `population`'s.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.sharding import Mesh
from jaxtyping import Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.particles.weights import log_Z_hat, normalise, num_families, systematic
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.moves import SliceMove
from nestedvi.smc.population import Population

__all__ = [
    "MAX_THRESHOLDS",
    "NestedPlan",
    "NestedRun",
    "Thresholds",
    "follow_thresholds",
    "log_above",
    "nested_sampling",
]

MAX_THRESHOLDS = 400
# Particles so far below the heaviest are never picked, and are not kept.
_NEGLIGIBLE = 30.0


def log_above(threshold: Scalar, log_base: Callable[[], Scalar], log_target: Scalar) -> Scalar:
    """log γ_ℓ at one point. Where the target is NaN there is no mass."""
    value = log_base()
    return jnp.where(log_target - value > threshold, value, -jnp.inf)


_SLICES = SliceMove()


class NestedPlan(NamedTuple):
    """How a run goes: the share of the particles that a threshold keeps, slice steps at each of
    them for each dimension, draws from the base for each particle that goes on, and the share of Ẑ
    that may be left above the last threshold.

    What is left is judged by the highest weight that was seen. A part of the target that nobody has
    seen yet may still be above: the smaller `left` is, the narrower it may be and be found.
    """

    share: float = 0.5
    slices: float = 2.0
    draws: int = 16
    left: float = 1e-6


class Thresholds(NamedTuple):
    """What no longer adapts: rising thresholds, and for each of them the number of moves, the width
    of their brackets and the root of their metric.
    """

    thresholds: Float[np.ndarray, " levels"]
    moves: int
    widths: Float[np.ndarray, " levels"]
    roots: Sequence[Float[np.ndarray, "dim dim"]]


class NestedRun(NamedTuple):
    """A run from a base to the target.

    `z` are particles of the target, picked from all shells by weight, batch after batch;
    `log_ratio` are their log γ(z) − log q_1(z), and `log_Z_hats` is log Ẑ of every batch.
    `log_Z_variance` is the variance of `log_Z_hat` if moves forget where particles came from.
    `shares` are those of the particles that passed each threshold, in each batch. `drawn_log_w` are
    the log weights of the draws from the base, and `origin` is the one that a particle descends
    from. `left` is what the highest weight at hand would make of all that was
    above the last threshold, as a share of Ẑ. `values` is what was asked of the target for each
    particle.
    """

    z: Float[np.ndarray, "particles dim"]
    log_ratio: Float[np.ndarray, " particles"]
    log_Z_hats: Float[np.ndarray, " batches"]
    log_Z_variance: float
    tuned: Thresholds
    shares: Float[np.ndarray, "levels batches"]
    drawn_log_w: Float[np.ndarray, " draws"]
    origin: Int[np.ndarray, " particles"]
    left: float
    values: float

    @property
    def log_Z_hat(self) -> float:
        """log of the mean Ẑ."""
        return float(log_Z_hat(self.log_Z_hats))

    @property
    def origins(self) -> Int[np.ndarray, " batches"]:
        """How many draws from the base the particles of each batch descend from."""
        return num_families(self.origin, len(self.log_Z_hats))

    @property
    def num_levels(self) -> int:
        """How many thresholds it took."""
        return len(self.tuned.thresholds)


class _Shells:
    """What every shell adds: to Ẑ of each batch, and to the particles of the target."""

    def __init__(self, batches: int):
        self.log_Z = np.full(batches, -np.inf)
        self.levels: list[tuple[np.ndarray, float]] = []
        self.shares: list[np.ndarray] = []
        self._parts: list[tuple[np.ndarray, ...]] = []

    def add(self, now: Population, threshold: float) -> None:
        """The particles that do not pass a threshold."""
        batches, per_batch = now.log_w.shape
        batch = np.repeat(np.arange(batches), per_batch)
        below = now.log_ratio <= threshold
        log_part = np.where(below, now.log_w.reshape(-1) + now.log_ratio, -np.inf)
        self.log_Z = np.logaddexp(self.log_Z, log_Z_hat(log_part.reshape(now.log_w.shape)))
        log_part -= np.log(per_batch)
        rows = log_part >= self.log_Z[batch] - _NEGLIGIBLE
        columns = (now.z, now.log_ratio, now.origin, batch, log_part)
        self._parts.append(tuple(x[rows] for x in columns))
        self.levels.append((now.log_ratio, threshold))
        self.shares.append(1 - below.reshape(now.log_w.shape).mean(axis=1))

    def pick(self, rng: np.random.Generator, per_batch: int) -> tuple[np.ndarray, ...]:
        """Particles of each batch by their weight, with their log ratios and first draws."""
        *columns, batch, log_part = (np.concatenate(x) for x in zip(*self._parts, strict=True))
        ends = np.cumsum(np.bincount(batch, minlength=len(self.log_Z)))[:-1]
        rows = [
            mine[systematic(rng.uniform(), normalise(log_part[mine]), per_batch)]
            for mine in np.split(np.argsort(batch, kind="stable"), ends)
        ]
        return tuple(x[np.concatenate(rows)] for x in columns)

    def variance(self) -> float:
        """Of log Ẑ: what the spread of each level's particles adds up to. A particle stands for its
        weight if it is in the shell, else for the mean weight of all that is above.
        """
        above, relative = -np.inf, 0.0
        for log_ratio, threshold in reversed(self.levels):
            log_f = np.where(log_ratio <= threshold, log_ratio, above)
            below, above = above, float(log_Z_hat(log_f))
            if not np.isfinite(above):
                return np.inf
            passed = np.exp(np.log(max(np.mean(log_ratio > threshold), 1e-300)) + below - above)
            spread = np.mean(np.expm1(log_f - above) ** 2) / len(log_f)
            # What is relative to the part above counts by that part's share of this level.
            relative = spread + passed**2 * relative
        return float(relative)


class _Rising:
    """Finds the next threshold, the metric and the width from the particles at hand."""

    rate = 1.0

    def __init__(self, plan: NestedPlan, move: SliceMove):
        self.plan, self.move, self.moves = plan, move, 1
        self.width: float | None = None
        # Draws are many: as many as there are particles go on.
        self.share = min(plan.share, 1 / plan.draws)
        self.levels: list[tuple[float, np.ndarray]] = []
        self.widths: list[float] = []

    def threshold(self, now: Population, left: float) -> float | None:
        """None where little is left, or where no particle is above the others."""
        if left < self.plan.left or len(self.levels) == MAX_THRESHOLDS:
            return None
        quantile = float(np.quantile(now.log_ratio, 1 - self.share, method="lower"))
        # As the compiled move has it.
        threshold = float(np.asarray(quantile, now.z.dtype))
        self.share = self.plan.share
        # Weights that differ by no more than rounding have no levels.
        rises = not self.levels or threshold > self.levels[-1][0]
        return threshold if rises and np.any(now.log_ratio > threshold) else None

    def tune(self, threshold: float, z: np.ndarray) -> tuple[int, float, np.ndarray]:
        root, dim = self.move.root(z.astype(np.float64)), z.shape[1]
        self.levels.append((threshold, root))
        if self.width is None:
            self.width = self.move.first_step_size(dim)
            self.moves = -(-round(self.plan.slices * dim) // self.move.steps)
        return self.moves, self.width, root

    def learn(self, width: float) -> None:
        self.width = width
        self.widths.append(width)

    def tuned(self) -> Thresholds:
        thresholds = np.array([one for one, _ in self.levels])
        roots = [root for _, root in self.levels]
        return Thresholds(thresholds, self.moves, np.array(self.widths), roots)


class _Given:
    """Thresholds, metrics and widths that were found before."""

    rate = 0.0

    def __init__(self, tuned: Thresholds):
        self._tuned, self._at = tuned, -1

    def threshold(self, now: Population, left: float) -> float | None:
        self._at += 1
        thresholds = self._tuned.thresholds
        return float(thresholds[self._at]) if self._at < len(thresholds) else None

    def tune(self, threshold: float, z: np.ndarray) -> tuple[int, float, np.ndarray]:
        at = self._at
        return self._tuned.moves, float(self._tuned.widths[at]), self._tuned.roots[at]

    def learn(self, width: float) -> None:
        pass

    def tuned(self) -> Thresholds:
        return self._tuned


def _run(
    key: Key, now: Population, guide: _Rising | _Given, num: int, batches: int, draws: int
) -> NestedRun:
    """From the base over all thresholds that the guide names."""
    key_draw, key_resample, key_move = split_on_host(key, 3)
    rng, rng_move, shells = generator(key_resample), generator(key_move), _Shells(batches)
    now.draw(key_draw, num, batches, draws)
    drawn_log_w = now.log_ratio
    while (threshold := guide.threshold(now, _left(now, shells))) is not None:
        shells.add(now, threshold)
        passed = now.log_ratio.reshape(now.log_w.shape) > threshold
        now.log_w = np.where(passed, now.log_w, -np.inf)
        now.resample(rng, num // batches, below=2.0)
        count, width, root = guide.tune(threshold, now.z)
        guide.learn(now.step(rng_move, threshold, count, width, root, guide.rate))
    left = _left(now, shells)
    shells.add(now, np.inf)
    z, log_ratio, origin = shells.pick(rng, num // batches)
    return NestedRun(
        z=z,
        log_ratio=log_ratio,
        log_Z_hats=shells.log_Z,
        log_Z_variance=shells.variance(),
        tuned=guide.tuned(),
        shares=np.stack(shells.shares[:-1]) if shells.shares[1:] else np.empty((0, batches)),
        drawn_log_w=drawn_log_w,
        origin=origin,
        left=left,
        # One for each draw, and one at each threshold: the weights.
        values=draws + len(shells.shares) - 1 + now.counted * now.move.values,
    )


def _left(now: Population, shells: _Shells) -> float:
    """What would be above if all had the highest weight at hand, as a share of Ẑ."""
    log_Z = float(log_Z_hat(shells.log_Z))
    if not np.isfinite(log_Z):
        return np.inf
    log_passed = float(scipy.special.logsumexp(now.log_w[:, 0]) - np.log(len(now.log_w)))
    return float(np.exp(min(log_passed + float(now.log_ratio.max()) - log_Z, 700.0)))


def nested_sampling(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    plan: NestedPlan,
    *,
    num_particles: int,
    move: SliceMove = _SLICES,
    piece: int | None = None,
    mesh: Mesh | None = None,
) -> NestedRun:
    """An adaptive run, until next to nothing is left above the last threshold. Moves are compiled
    for `piece` particles at once, all of them unless it is given; the devices of a mesh share them.
    """
    now = Population(base, target, move, piece or num_particles, log_above, mesh)
    return _run(key, now, _Rising(plan, move), num_particles, 1, plan.draws)


def follow_thresholds(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    tuned: Thresholds,
    *,
    num_particles: int,
    batches: int,
    draws: int = 1,
    move: SliceMove = _SLICES,
    piece: int | None = None,
    mesh: Mesh | None = None,
) -> NestedRun:
    """Fresh particles in independent batches along thresholds that are given: nothing adapts to
    them, so that the Ẑ of every batch is unbiased. `num_particles` is a multiple of `batches`.
    """
    now = Population(base, target, move, piece or num_particles, log_above, mesh)
    return _run(key, now, _Given(tuned), num_particles, batches, draws)
