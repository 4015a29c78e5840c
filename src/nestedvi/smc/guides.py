"""What guides a tempered run from one temperature to the next: particles at hand, or a run before.

An adaptive guide finds the next temperature, the metric of the moves and their size. What it found
is a `Tuned`, which another guide repeats for fresh particles. Nothing here moves a particle.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nestedvi.particles.weights import ess
from nestedvi.smc.moves import AbstractMove

__all__ = ["MAX_LEVELS", "Adapting", "Following", "Plan", "Tuned", "next_beta"]

MAX_LEVELS = 200


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


class Tuned(NamedTuple):
    """What no longer adapts: temperatures up to 1, and for each of them the number of moves, their
    step size and the root of their metric.
    """

    betas: Float[np.ndarray, " levels"]
    moves: Sequence[int]
    step_sizes: Float[np.ndarray, " levels"]
    roots: Sequence[Float[np.ndarray, "dim dim"]]


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
        self.levels: list[tuple[float, int, np.ndarray]] = []
        self.sizes: list[float] = []
        self.rounds_left = plan.extra

    def temperature(self, beta: float, log_ratio: np.ndarray) -> float | None:
        if beta < 1 and len(self.levels) < MAX_LEVELS:
            share, self.share = self.share, self.plan.ess_share
            return next_beta(beta, log_ratio, share)
        self.rounds_left -= 1
        return beta if self.rounds_left >= 0 else None

    def tune(self, beta: float, z: np.ndarray) -> tuple[int, float, np.ndarray]:
        hot = len(self.levels) < self.plan.hot and beta < 1
        count = 2 * self.plan.moves if hot else self.plan.moves
        root = self.move.root(z.astype(np.float64))
        if self.step_size is None:
            self.step_size = self.move.first_step_size(z.shape[1])
        if self.rounds_left == self.plan.extra:
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

    def temperature(self, beta: float, log_ratio: np.ndarray) -> float | None:
        self._at += 1
        return float(self._tuned.betas[self._at]) if self._at < len(self._tuned.betas) else None

    def tune(self, beta: float, z: np.ndarray) -> tuple[int, float, np.ndarray]:
        _, moves, sizes, roots = self._tuned
        return moves[self._at], float(sizes[self._at]), roots[self._at]

    def learn(self, step_size: float) -> None:
        pass

    def tuned(self) -> Tuned:
        return self._tuned
