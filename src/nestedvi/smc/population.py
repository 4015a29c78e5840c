"""Particles of independent batches on their way from a base to a target: drawn, reweighted,
resampled and moved, on the host.

A move leaves a density invariant; it takes its metric from the particles and its size from how
often earlier moves were accepted. What is compiled is one program that draws and one that moves a
piece of the particles, whatever happens in between. All noise is made on the host in the same
order, so that the devices of a mesh move particles as one device does. It refuses to know how
temperatures are found.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Key, Scalar
from nestedvi.compilation import compiled_soon, uncompiled
from nestedvi.densities.affine import bulk_root
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.densities.low_rank import FULL_DIM, LowRankRoot, low_rank_bulk_root
from nestedvi.devices import put, size_of, spread
from nestedvi.fitting.importance import (
    as_number,
    draw_many_weighted,
    draw_weighted,
    log_ratio_at,
    weigh,
)
from nestedvi.host import is_on_host
from nestedvi.kernels.hmc import hamiltonian_step, noise_on_host
from nestedvi.particles.weights import (
    ess,
    log_Z_hat,
    normalise,
    normalise_cut,
    relative_variance,
    systematic,
)
from nestedvi.pieces import in_pieces

__all__ = [
    "AbstractMove",
    "HamiltonianMove",
    "Moved",
    "Population",
    "Root",
]

Vector = Float[Array, " dim"]
LogDensity = Callable[[Vector], Scalar]
# (number, what computes log base, log target) -> log density, at one point.
Between = Callable[[Scalar, Callable[[], Scalar], Scalar], Scalar]
Particles = Float[np.ndarray, "particles dim"]
Rng = np.random.Generator
Root = Float[np.ndarray, "dim dim"] | LowRankRoot
# A particle whose own acceptance is below this is stuck.
_REFUSED = 0.1
# So many moves in one call, where every call waits.
_TOGETHER = 4


class Moved(NamedTuple):
    """Where a particle is, how likely its proposal was to be accepted, and 1 if that proposal was
    of the tuned size (0 if it does not count for tuning); or many of them.
    """

    z: Vector
    acceptance: Scalar
    tuned: Scalar


class AbstractMove(eqx.Module):
    """A move of one vector that leaves a density invariant for any step size and metric."""

    acceptance: eqx.AbstractClassVar[float]
    """The mean acceptance that the step size is tuned to."""

    @abc.abstractmethod
    def root(self, z: Particles) -> Root:
        """A root of the metric, from the particles; on the host."""

    @abc.abstractmethod
    def noise(self, rng: Rng, num: int, dim: int, dtype: Any) -> PyTree:
        """All that is random in a move of each of `num` particles; on the host."""

    @abc.abstractmethod
    def __call__(
        self, noise: PyTree, z: Vector, log_gamma: LogDensity, step_size: Scalar, root: Any
    ) -> Moved:
        """One move of one particle."""

    @abc.abstractmethod
    def first_step_size(self, dim: int) -> float:
        """Where tuning starts."""

    @property
    @abc.abstractmethod
    def gradients(self) -> int:
        """Gradients of the density that a move takes."""

    @property
    @abc.abstractmethod
    def values(self) -> int:
        """Values of the density that a move takes besides."""


class HamiltonianMove(AbstractMove):
    """A Hamiltonian trajectory of `leaps` leapfrog steps in the metric of the particles' bulk (a
    diagonal and a few directions in many dimensions), or of a root that is known.
    """

    leaps: int = eqx.field(static=True, default=10)
    known: LowRankRoot | None = None

    acceptance: ClassVar[float] = 0.8

    def root(self, z: Particles) -> Root:
        if self.known is not None:
            return self.known
        return bulk_root(z) if z.shape[1] <= FULL_DIM else low_rank_bulk_root(z)

    def noise(self, rng: Rng, num: int, dim: int, dtype: Any) -> PyTree:
        return noise_on_host(rng, num, dim, dtype)

    def __call__(
        self, noise: PyTree, z: Vector, log_gamma: LogDensity, step_size: Scalar, root: Any
    ) -> Moved:
        moved = hamiltonian_step(noise, z, log_gamma, step_size, root, self.leaps)
        return Moved(moved.z, moved.acceptance, moved.tuned)

    def first_step_size(self, dim: int) -> float:
        return 0.3

    @property
    def gradients(self) -> int:
        return self.leaps + 1

    @property
    def values(self) -> int:
        return 0


def _moved(pairs: Any, densities: Any, tuning: Any, move: AbstractMove, between: Between) -> Moved:
    beta, step_size, root = tuning
    base, target = densities

    def log_density(z):
        return between(beta, lambda: base.log_gamma(z) - base.log_Z, target.log_gamma(z))

    return jax.vmap(lambda noise, z: move(noise, z, log_density, step_size, root))(*pairs)


@compiled_soon
def _move(
    pairs: tuple[Any, Float[Array, "piece dim"]],
    densities: tuple[AbstractSampleable, AbstractDensity],
    tuning: tuple[Scalar, Scalar, Any],
    move: AbstractMove,
    between: Between,
) -> Moved:
    """A move of every particle, with its noise, at a temperature."""
    return _moved(pairs, [one.precomputed() for one in densities], tuning, move, between)


def _move_share(pairs: Any, shared: tuple[Any, Any], move: AbstractMove, between: Between) -> Moved:
    """What one device of several does."""
    return uncompiled(_move)(pairs, *shared, move, between)


class _Seen(NamedTuple):
    """Where particles are after some moves, the size that suits them, and how many moves of the
    tuned size each has tried and what of those was accepted.
    """

    z: Any
    size: Any
    tried: Any
    accepted: Any

    def after(self, moved: Moved, rate: Any, acceptance: float, xp: Any) -> "_Seen":
        """After one more move of each; `xp` is NumPy or JAX's version of it."""
        accepted = moved.tuned * moved.acceptance
        share = xp.sum(accepted) / xp.maximum(xp.sum(moved.tuned), 1)
        size = self.size * xp.exp(rate * (share - acceptance))
        return _Seen(moved.z, size, self.tried + moved.tuned, self.accepted + accepted)


@compiled_soon
def _move_often(
    noise: Any,
    count: Scalar,
    seen: _Seen,
    densities: tuple[AbstractSampleable, AbstractDensity],
    tuning: tuple[Scalar, Scalar, Any],
    move: AbstractMove,
    between: Between,
) -> tuple[_Seen, Float[Array, " particles"]]:
    """`count` moves of all particles, with the noise of each on a leading axis; and the log ratios
    where they end.
    """
    beta, rate, root = tuning
    base, target = densities[0].precomputed(), densities[1].precomputed()

    def one(i: Scalar, seen: _Seen) -> _Seen:
        pairs = jax.tree.map(lambda x: x[i], noise), seen.z
        moved = _moved(pairs, (base, target), (beta, seen.size, root), move, between)
        return seen.after(moved, rate, move.acceptance, jnp)

    seen = jax.lax.fori_loop(0, count, one, seen)
    return seen, jax.vmap(lambda z: log_ratio_at(base, target, z))(seen.z)


class Population:
    """Particles on their way: `z` and log ratios, batch after batch, log weights a batch a row, and
    the draw that each descends from. `between` are the densities on the way, by a number for each.
    """

    def __init__(
        self,
        base: AbstractSampleable,
        target: AbstractDensity,
        move: AbstractMove,
        piece: int,
        between: Between,
        mesh: Mesh | None = None,
    ):
        self.base, self.target, self.move, self.piece, self.mesh = base, target, move, piece, mesh
        self.between = between
        # Where moves find them, once and not at every move.
        self._there = (base, target) if mesh is None else put((base, target), mesh)
        self.variance, self.stuck, self.counted = 0.0, 0.0, 0

    def draw(self, key: Key, num: int, batches: int, draws: int) -> None:
        """`draws` draws from the base for each of `num` particles, in batches of one size."""
        if num % batches:
            raise ValueError(
                f"Batches are of one size: {num} particles do not make {batches} of them."
            )
        draw = draw_many_weighted if draws > 1 else draw_weighted
        drawn, self.log_ratio = draw(key, self.base, self.target, draws * num, self.mesh)
        self.z, self.origin = np.asarray(drawn), np.arange(len(drawn))
        self.log_w = np.zeros((batches, len(drawn) // batches))

    def pick(self, rng: Rng, times: int, num: int) -> Float[np.ndarray, "times num dim"]:
        """`num` of the draws, so many times, by their weights for the target. A draw that is picked
        several times stands in the same place, or beside it, in all of them.
        """
        if not times:
            return np.empty((0, num, self.z.shape[1]), self.z.dtype)
        rows = systematic(rng.uniform(), normalise_cut(self.log_ratio), times * num)
        return np.stack([self.z[rows[i::times]] for i in range(times)])

    def reweight(self, rise: float) -> None:
        """To a temperature that is higher by `rise`."""
        self.log_w = self.log_w + rise * self.log_ratio.reshape(self.log_w.shape)

    def resample(self, rng: Rng, per_batch: int, below: float) -> None:
        """Batches whose ESS is below a share, systematically; all if their number changes."""
        batches, before = self.log_w.shape
        picks = np.arange(batches * before).reshape(batches, before)[:, :per_batch].copy()
        log_w = self.log_w[:, :per_batch].copy()
        for b, weights in enumerate(self.log_w):
            size = float(ess(weights))
            if size == 0:
                # Nothing is left of this batch, and nothing will be.
                log_w[b] = -np.inf
            elif before != per_batch or size < below * before:
                kept = systematic(rng.uniform(), normalise(weights), per_batch)
                picks[b], log_w[b] = b * before + kept, log_Z_hat(weights)
                self.variance += relative_variance(weights) / batches**2
        rows = picks.reshape(-1)
        self.z, self.log_ratio, self.origin = (
            x[rows] for x in (self.z, self.log_ratio, self.origin)
        )
        self.log_w = log_w

    @property
    def log_Z_variance(self) -> float:
        """What the weights' spread at every resampling adds up to, and their spread since."""
        return self.variance + sum(map(relative_variance, self.log_w)) / len(self.log_w) ** 2

    def step(self, rng: Rng, beta: float, count: int, size: float, root: Any, rate: float) -> float:
        """`count` moves at a temperature, and the size that they were tuned to, at that `rate`."""
        num, dtype = len(self.z), self.z.dtype
        seen = _Seen(self.z, np.asarray(size, dtype), *np.zeros((2, num), dtype))
        fixed = jax.device_put(jax.tree.map(lambda x: np.asarray(x, dtype), (beta, rate, root)))
        # Where every call waits, and no piece of the particles is tuned without the others.
        together = _TOGETHER if self.mesh is None and num <= self.piece and not is_on_host() else 1
        for done in range(0, count, together):
            if together > 1:
                now = min(together, count - done)
                seen, self.log_ratio = self._move_often(rng, now, seen, fixed)
            else:
                moved = self._move_all(rng, seen, fixed)
                seen = seen.after(moved, rate, self.move.acceptance, np)
        self.z = seen.z
        self.counted += count
        if together == 1:
            self.log_ratio = weigh(self.base, self.target, self.z, self.mesh)
        self.stuck = float(np.mean((seen.tried > 1) & (seen.accepted < _REFUSED * seen.tried)))
        return float(seen.size)

    def _move_often(
        self, rng: Rng, count: int, seen: _Seen, tuning: Any
    ) -> tuple[_Seen, np.ndarray]:
        """`count` moves of all in one call, which is compiled for a fixed number of them; and log
        ratios.
        """
        num, dim = self.z.shape
        noise = [self.move.noise(rng, num, dim, self.z.dtype) for _ in range(count)]
        noise += (_TOGETHER - count) * [jax.tree.map(np.zeros_like, noise[0])]
        stacked = jax.tree.map(lambda *xs: np.stack(xs), *noise)
        given = jax.device_put((stacked, np.int32(count), seen))
        moved: Any = partial(_move_often, *given)
        seen, log_ratio = jax.device_get(moved(self._there, tuning, self.move, self.between))
        return seen, as_number(log_ratio)

    def _move_all(self, rng: Rng, seen: _Seen, fixed: Any) -> Moved:
        """One move of all particles, in pieces of one size."""
        z, tuning = seen.z, (fixed[0], jax.device_put(seen.size), fixed[2])
        num, dim = z.shape
        pairs = [
            (self.move.noise(rng, len(rows), dim, z.dtype), rows)
            for rows in in_pieces(z, self.piece)
        ]
        how = (self.move, self.between)
        if self.mesh is None:
            moved = [_move(jax.device_put(pair), self._there, tuning, *how) for pair in pairs]
        else:
            # As many for a device as it has alone, or its share where that is less.
            devices = size_of(self.mesh, "batches")
            shared = devices * min(self.piece, -(-num // devices))
            leaves, tree = jax.tree.flatten(jax.tree.map(lambda *xs: np.concatenate(xs), *pairs))
            parts = zip(*(in_pieces(x, shared) for x in leaves), strict=True)
            share = partial(spread, _move_share, self.mesh, "batches")
            there = (self._there, tuning)
            moved = [share(jax.tree.unflatten(tree, x), there, *how) for x in parts]
        columns = zip(*(jax.device_get(one) for one in moved), strict=True)
        return Moved._make(np.concatenate(x)[:num] for x in columns)
