"""Tempered SMC: from a base q_1 to a target γ along γ_β = q_1^{1-β} γ^β.

An adaptive run finds its temperatures, metrics and step sizes from its own particles: each
temperature keeps a given share of the effective sample size. Its Ẑ is therefore only nearly
unbiased. What it found can be kept (`Tuned`) and followed by fresh particles in independent
batches: their Ẑ is unbiased. Both are one loop, on the host. A guide names the next temperature,
from particles at hand or from a run before, and the move is an argument. What particles do at a
temperature is `population`'s.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, log_geometric
from nestedvi.particles.weights import ess, log_Z_hat, next_beta, num_families, two_groups
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.population import AbstractMove, HamiltonianMove, Population, Root

__all__ = [
    "MAX_LEVELS",
    "Adapting",
    "Following",
    "Plan",
    "Tempering",
    "Transition",
    "Tuned",
    "find_transition",
    "follow",
    "log_tempered",
    "tempering",
]

MAX_LEVELS = 200
_HAMILTONIAN = HamiltonianMove()
# Two groups of log ratios are apart when the gap between their means is so many times the sum of
# their standard deviations (1.3 for the halves of a Gaussian, up to 2.4 for skew and heavy-tailed
# ratios) and so many nats. At temperatures below the last, parts of the base are the groups.
_APART, _NATS, _HOTTEST = 2.5, 4.0, 0.1
# Draws whose weights keep this share of them serve as well as particles that are moved.
_SERVE = 0.4


class Plan(NamedTuple):
    """How a run goes: the share of the ESS that a temperature keeps, moves at each, rounds of moves
    after the last, draws from the base for each particle that goes on, the number of hottest
    temperatures with twice the moves (modes that are far apart later are still joined there), how
    many of the extra rounds to leave out where the draws serve as well: as many particles are then
    picked from those; and the moves of each extra round, where they are not as many."""

    ess_share: float
    moves: int
    extra: int = 0
    draws: int = 1
    hot: int = 0
    picks: int = 0
    extra_moves: int | None = None


class Tuned(NamedTuple):
    """What no longer adapts: temperatures up to 1, and for each of them the number of moves, their
    step size and the root of their metric.
    """

    betas: Float[np.ndarray, " levels"]
    moves: Sequence[int]
    step_sizes: Float[np.ndarray, " levels"]
    roots: Sequence[Root]


def log_tempered(beta: Scalar, log_base: Callable[[], Scalar], log_target: Scalar) -> Scalar:
    """log γ_β at one point. At β = 1 the base does not count, and one that was learned costs more
    than most targets do: there it is not computed.
    """
    dtype = jax.eval_shape(log_base).dtype
    value = jax.lax.cond(beta == 1, lambda: jnp.zeros((), dtype), log_base)
    return log_geometric(beta, value, log_target)


class Adapting:
    """Finds the next temperature, the metric and the step size from the particles at hand."""

    # Batches are resampled at every temperature, whatever their ESS is.
    rate, resample_below = 1.0, 2.0

    def __init__(self, plan: Plan, move: AbstractMove, step_size: float | None):
        self.plan, self.move, self.step_size = plan, move, step_size
        # More draws than particles: an ESS of twice their number is enough for the first
        # temperature. Still more make it more certain, not higher: moves at high temperatures are
        # worth having.
        self.share = max(2 / plan.draws, 1 / 12) if plan.draws > 2 else plan.ess_share
        self.levels: list[tuple[float, int, Root]] = []
        self.sizes: list[float] = []
        self.extra = self.rounds_left = plan.extra

    def picks(self, log_ratio: np.ndarray) -> int:
        """How many of the draws to pick for each particle. As many rounds of moves are left out."""
        picks = self.plan.picks if ess(log_ratio) > _SERVE * len(log_ratio) else 0
        self.extra = self.rounds_left = self.plan.extra - picks
        return picks

    def temperature(self, beta: float, log_ratio: np.ndarray) -> float | None:
        if beta < 1 and len(self.levels) < MAX_LEVELS:
            share, self.share = self.share, self.plan.ess_share
            return next_beta(beta, log_ratio, share)
        self.rounds_left -= 1
        return beta if self.rounds_left >= 0 else None

    def tune(self, beta: float, z: np.ndarray) -> tuple[int, float, Root]:
        hot = len(self.levels) < self.plan.hot and beta < 1
        count = 2 * self.plan.moves if hot else self.plan.moves
        if self.rounds_left < self.extra and self.plan.extra_moves is not None:
            count = self.plan.extra_moves
        root = self.move.root(z.astype(np.float64))
        if self.step_size is None:
            self.step_size = self.move.first_step_size(z.shape[1])
        if self.rounds_left == self.extra:
            self.levels.append((beta, count, root))
        return count, self.step_size, root

    def learn(self, step_size: float) -> None:
        self.step_size = step_size
        # Rounds after the last temperature improve its size.
        self.sizes[len(self.levels) - 1 :] = [step_size]

    def tuned(self) -> Tuned:
        betas, counts, roots = zip(*self.levels, strict=True)
        return Tuned(np.array(betas), counts, np.array(self.sizes), roots)


class Following:
    """Temperatures, metrics and step sizes that were found before."""

    rate = 0.0

    def __init__(self, tuned: Tuned, resample_below: float):
        self._tuned, self._at, self.resample_below = tuned, -1, resample_below

    def picks(self, log_ratio: np.ndarray) -> int:
        return 0

    def temperature(self, beta: float, log_ratio: np.ndarray) -> float | None:
        self._at += 1
        return float(self._tuned.betas[self._at]) if self._at < len(self._tuned.betas) else None

    def tune(self, beta: float, z: np.ndarray) -> tuple[int, float, Root]:
        _, moves, sizes, roots = self._tuned
        return moves[self._at], float(sizes[self._at]), roots[self._at]

    def learn(self, step_size: float) -> None:
        pass

    def tuned(self) -> Tuned:
        return self._tuned


class Tempering(NamedTuple):
    """A run from a base to the target.

    `z` are particles at the end, `log_w` their log weights, batch after batch: Ẑ of a batch is the
    mean of its weights. An adaptive run is one batch of equal weights. `history` are the
    particles at the last temperature and after every further round of moves (first axis), `picked`
    draws from the base that were picked by their weights for the target.
    `base_share` is the ESS of importance sampling from the base, as a share of the draws, and
    `drawn_log_w` are the draws' weights for the first temperature. `log_ratios` are log γ(z) − log
    q_1(z) at draws from the base and, after the moves, at each temperature. `log_Z_variance` is
    what the weights' spread at each temperature adds up to: the variance of `log_Z_hat` if moves
    forget where particles came from. `stuck` is the share of particles for which moves of the
    tuned size were, in the last round, all but sure to be refused. `origin` is the draw from the
    base that a particle descends from. `gradients` and `values` are what was asked of the target
    for each particle.
    """

    z: Float[np.ndarray, "particles dim"]
    log_w: Float[np.ndarray, "batches particles_of_batch"]
    history: Float[np.ndarray, "rounds particles dim"]
    picked: Float[np.ndarray, "picks particles dim"]
    log_Z_variance: float
    base_share: float
    drawn_log_w: Float[np.ndarray, " draws"]
    tuned: Tuned
    log_ratios: Float[np.ndarray, "1+levels particles"]
    step_size: float
    root: Root
    stuck: float
    origin: Int[np.ndarray, " particles"]
    gradients: int
    values: float

    @property
    def origins(self) -> Int[np.ndarray, " batches"]:
        """How many draws from the base the particles of each batch descend from."""
        return num_families(self.origin, len(self.log_w))

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


class Transition(NamedTuple):
    """Where it shows most: the temperature, by how many nats the two groups' log ratios differ, how
    far that is in their standard deviations, and the share of the particles that are in the
    narrow part: the group with the higher ratios.
    """

    beta: float
    gap: float
    apart: float
    share: float


def find_transition(run: Tempering) -> Transition | None:
    """The temperature at which log ratios are furthest from being one group; None if they are one
    at each.
    """
    # Moves at the same temperature as before left one row of ratios.
    betas = np.unique(run.betas)
    found = [
        Transition(float(beta), *two_groups(log_ratio))
        for beta, log_ratio in zip(betas, run.log_ratios[1:], strict=False)
    ]
    apart = [one for one in found if one.apart > _APART and one.gap > _NATS and one.beta > _HOTTEST]
    return max(apart, key=lambda one: one.apart, default=None)


def _run(
    key: Key, now: Population, guide: Adapting | Following, num: int, batches: int, draws: int
) -> Tempering:
    """From the base to the last temperature that the guide names."""
    key_draw, *keys = split_on_host(key, 3)
    (rng, rng_move), beta, move = map(generator, keys), 0.0, now.move
    now.draw(key_draw, num, batches, draws)
    base_share = float(ess(now.log_ratio)) / len(now.log_ratio)
    picked = now.pick(rng, guide.picks(now.log_ratio), num)
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
            guide.learn(now.step(rng_move, beta, count, size, root, guide.rate))
        ratios.append(now.log_ratio)
        history.append(now.z)
    assert drawn_log_w is not None
    tuned = guide.tuned()
    return Tempering(
        z=now.z,
        log_w=now.log_w,
        history=np.stack(history),
        picked=picked,
        log_Z_variance=now.log_Z_variance,
        base_share=base_share,
        drawn_log_w=drawn_log_w,
        tuned=tuned,
        log_ratios=np.stack(ratios),
        step_size=float(tuned.step_sizes[-1]),
        root=move.root(now.z.astype(np.float64)) if guide.rate else tuned.roots[-1],
        stuck=now.stuck,
        origin=now.origin,
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
    mesh: Mesh | None = None,
) -> Tempering:
    """An adaptive run from β = 0 to 1.

    Draws from the base need no moves, so there are `plan.draws` times as many: with more of them
    the first temperature can be higher, more of what the base seldom proposes is found, and the
    particles that go on have fewer ancestors in common. Moves are compiled for `piece` particles at
    once, all of them unless it is given; the devices of a mesh share them.
    """
    now = Population(base, target, move, piece or num_particles, log_tempered, mesh)
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
    mesh: Mesh | None = None,
) -> Tempering:
    """Fresh particles in independent batches of one size, along given temperatures: nothing
    adapts to them, so that the Ẑ of every batch is unbiased. A batch is resampled when its ESS is
    below a share, always if that is above one.
    """
    now = Population(base, target, move, piece or num_particles, log_tempered, mesh)
    return _run(key, now, Following(tuned, resample_below), num_particles, batches, draws)
