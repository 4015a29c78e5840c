"""Many maximisations of one log density side by side: L-BFGS on the host, gradients in batches.

A library's optimiser asks for one gradient at a time, which is what an accelerator and a compiled
program are worst at. Here every round asks for the gradients of all climbs at once. A climb takes a
step that rises enough, or tries a shorter one in the next round, whatever the others do.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["Climbed", "climb"]

ValuesAndGradients = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

_MEMORY = 12
_RISE = 1e-4
# A climb ends when so many steps in a row rose, and the next one promises to rise, by less than
# this in log density.
_ENOUGH, _PATIENCE = 1e-3, 4
_SHORTEST = 1e-9
# The square of a larger slope is no number.
_STEEPEST = 1e150


class Climbed(NamedTuple):
    """Where climbs ended, log γ there, and which of them ended at a top (others ran out of rounds
    or began where there is no mass); the rounds that it took.
    """

    z: Float[np.ndarray, "starts dim"]
    log_gamma: Float[np.ndarray, " starts"]
    at_top: np.ndarray
    rounds: int


class _Memory:
    """The last steps of every climb and how the gradient changed over them."""

    def __init__(self, num: int, dim: int):
        self.steps = np.zeros((_MEMORY, num, dim))
        self.changes = np.zeros((_MEMORY, num, dim))
        self.curvature = np.zeros((_MEMORY, num))

    def add(self, rows: np.ndarray, steps: np.ndarray, changes: np.ndarray) -> None:
        """The newest is last; a step along which the density curves upwards is forgotten."""
        curvature = np.sum(steps * changes, axis=1)
        size = np.linalg.norm(steps, axis=1) * np.linalg.norm(changes, axis=1)
        good = curvature > 1e-8 * size
        rows, curvature = rows[good], curvature[good]
        for kept, new in ((self.steps, steps[good]), (self.changes, changes[good])):
            kept[:-1, rows] = kept[1:, rows]
            kept[-1, rows] = new
        self.curvature[:-1, rows] = self.curvature[1:, rows]
        self.curvature[-1, rows] = curvature

    def forget(self, rows: np.ndarray) -> None:
        self.curvature[:, rows] = 0.0

    def direction(self, rows: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The gradient times an inverse Hessian by the two-loop recursion; a memory slot that is
        empty leaves it alone.
        """
        d, weights = gradient.copy(), []
        empty = self.curvature[:, rows] <= 0
        rho = np.where(empty, 0.0, 1 / np.where(empty, 1.0, self.curvature[:, rows]))
        for i in range(_MEMORY - 1, -1, -1):
            weight = rho[i] * np.sum(self.steps[i, rows] * d, axis=1)
            weights.append(weight)
            d -= weight[:, None] * self.changes[i, rows]
        change = np.sum(self.changes[-1, rows] ** 2, axis=1)
        first = 1 / np.maximum(np.linalg.norm(gradient, axis=1), 1e-300)
        # Without a memory the first step is of length one, in the units of the search.
        fresh = empty[-1]
        unit = np.where(
            fresh, np.minimum(first, 1.0), self.curvature[-1, rows] / np.where(fresh, 1.0, change)
        )
        d *= unit[:, None]
        for i in range(_MEMORY):
            back = rho[i] * np.sum(self.changes[i, rows] * d, axis=1)
            d += (weights[_MEMORY - 1 - i] - back)[:, None] * self.steps[i, rows]
        return d


def climb(
    ask: ValuesAndGradients, starts: Float[np.ndarray, "starts dim"], *, rounds: int = 400
) -> Climbed:
    """Tops of log γ above every start; `ask` gives values and gradients of many particles at once.
    Where either is not finite, or its square is not, there is no mass, and a step into it is too
    long.
    """
    z = np.array(starts, np.float64)
    num, dim = z.shape
    memory, everyone = _Memory(num, dim), np.arange(num)
    value, gradient = _finite(*ask(z))
    running, at_top = np.isfinite(value), np.zeros(num, bool)
    d = memory.direction(everyone, gradient)
    size, calm, done = np.ones(num), np.zeros(num, int), 0
    while running.any() and done < rounds:
        done += 1
        slope = np.sum(gradient * d, axis=1)
        going = np.flatnonzero(running)
        new_value, new_gradient = value.copy(), gradient.copy()
        new_value[going], new_gradient[going] = _finite(
            *ask(z[going] + size[going, None] * d[going])
        )
        # Rounding of a large log density must not refuse a good step.
        slack = 1e-9 + np.finfo(np.float32).eps * np.abs(value) * 0.1
        with np.errstate(invalid="ignore"):
            rises = running & (new_value >= value + _RISE * size * slope - slack)
        rows = np.flatnonzero(rises)
        memory.add(rows, size[rows, None] * d[rows], gradient[rows] - new_gradient[rows])
        rose = new_value[rows] - value[rows]
        z[rows] += size[rows, None] * d[rows]
        value[rows], gradient[rows] = new_value[rows], new_gradient[rows]
        d[rows], size[rows] = memory.direction(rows, gradient[rows]), 1.0
        promised = np.sum(gradient[rows] * d[rows], axis=1)
        calm[rows] = np.where(np.maximum(rose, promised) < _ENOUGH, calm[rows] + 1, 0)
        ended = rows[(calm[rows] >= _PATIENCE) | (promised <= 1e-12)]
        size[running & ~rises] *= 0.3
        short = np.flatnonzero(running & (size < _SHORTEST))
        # Too short a step: once more along the gradient, and if there is no memory to blame, here.
        blamed = memory.curvature[-1, short] > 0
        memory.forget(short[blamed])
        d[short[blamed]] = memory.direction(short[blamed], gradient[short[blamed]])
        size[short] = 1.0
        for at in (ended, short[~blamed]):
            running[at], at_top[at] = False, True
    return Climbed(z, value, at_top, done)


def _finite(value: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value, gradient = np.array(value, np.float64), np.array(gradient, np.float64)
    bad = ~np.isfinite(value) | ~(np.abs(gradient) < _STEEPEST).all(axis=1)
    value[bad], gradient[bad] = -np.inf, 0.0
    return value, gradient
