"""Does a density have a finite normaliser? Particles of an improper one never stop spreading.

Random-walk moves along differences of other particles follow any ridge and are as long as the
particles are apart: a flat direction widens by a constant factor a round, for ever; the width of a
proper density settles, however large. Numbers end before that: a flat direction stops where the
density overflows. So a width that settles after it grew without measure must show a density that
falls along it. It is a test for mass that runs away, not a proof that none does. `RunawayError` is
raised here and nowhere else.
"""

from collections.abc import Callable
from typing import NoReturn

import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.affine import Pullback
from nestedvi.densities.base import log_values
from nestedvi.errors import DensityError
from nestedvi.randomness import generator

__all__ = ["RunawayError", "check_width", "settle"]

_PARTICLES, _MAX_ROUNDS, _MOST_ROUNDS = 500, 60, 200
# It is growth when a width is this much above what it was _WINDOW rounds ago: four standard errors
# of 500 particles.
_WINDOW, _GROWTH = 3, 1.3
# Widths may shrink first, from where a search left a few particles; that hides growth.
_WARM_UP, _MOVING = 4, 0.05
# Without measure when a width has grown a million times and to a million: it goes on for longer,
# and is refused unless the density falls. A case of doubt after the last round when both are 30.
_BEYOND, _DOUBTFUL = 1e6, 30.0
# The end of single precision, with room for sums.
_END = 1e36
# By how much the log density of particles half as far away is higher, at the least, where it falls;
# half a nat times 1 − ¼ for a Gaussian.
_FALLS = 0.02
# A width beyond any that a search which began with one could have reached.
_ASTRONOMIC = 1e8


class RunawayError(DensityError):
    """The particles spread without end along one coordinate."""


def _refuse(
    target: Pullback, names: tuple[str, ...], coordinate: int, before: float, after: float
) -> NoReturn:
    """Widths come in the target's coordinates and are said in the user's units."""
    unit = float(np.asarray(target.map.matrix)[coordinate])
    name = names[coordinate] if names else f"coordinate {coordinate}"
    raise RunawayError(
        f"log Z runs away: particles keep spreading along {name} (width {unit * before:.3g}, then"
        f" {unit * after:.3g} and still growing), as they do when a posterior is improper. Give"
        " that direction a proper prior."
    )


def check_width(
    target: Pullback, z: Float[Array, "particles dim"] | np.ndarray, names: tuple[str, ...] = ()
) -> None:
    """Raises `RunawayError` if a search, which began with a width of about one, ended so wide that
    it must have followed a flat direction.
    """
    width = np.nan_to_num(np.std(np.asarray(z, np.float64), axis=0), nan=np.inf)
    worst = int(np.argmax(width))
    if width[worst] > _ASTRONOMIC:
        _refuse(target, names, worst, 1.0, float(width[worst]))


def settle(
    key: Key,
    target: Pullback,
    z: Float[Array, "particles dim"] | np.ndarray,
    names: tuple[str, ...] = (),
) -> tuple[Float[np.ndarray, "particles dim"], int]:
    """500 of the particles after they moved until their widths settled, and how many values of the
    density that took; raises `RunawayError` if they spread without end.

    `z` is in units where the search began with a width of about one. The moves follow the density
    only roughly (all particles move at once, along each other): they are no estimate. The loop runs
    on the host; only values of the density are compiled.
    """
    rng, dtype = generator(key), z.dtype
    here = np.asarray(z, np.float64)[np.linspace(0, z.shape[0] - 1, _PARTICLES).astype(int)]
    values = 0

    def log_gamma(points: np.ndarray) -> np.ndarray:
        nonlocal values
        values += len(points)
        with np.errstate(over="ignore"):
            log_density = log_values(target, points.astype(dtype))
        return np.nan_to_num(log_density, nan=-np.inf, neginf=-np.inf)

    # Medians, which heavy but proper tails leave alone; from where the particles began, so that
    # drifting away is growth too.
    centre = np.median(here, axis=0)
    first = np.median(np.abs(here - centre), axis=0) + np.finfo(np.float32).tiny
    widths, log_here = [first] * _WINDOW, log_gamma(here)
    for done in range(1, _MOST_ROUNDS + 1):
        here, log_here, accepted = _round(rng, here, log_here, log_gamma)
        width = np.median(np.abs(here - centre), axis=0)
        beyond = np.minimum(width, width / first) >= _BEYOND
        # Particles that hardly move have widths that say nothing.
        settled = (
            done >= _WARM_UP + _WINDOW
            and accepted > _MOVING
            and bool(np.all(width < _GROWTH * widths[0]))
        )
        widths = [*widths[1:], width]
        if settled and not (beyond.any() and _is_flat(here, centre, log_gamma)):
            return here, values
        if settled or width.max() > _END or (done >= _MAX_ROUNDS and not beyond.any()):
            break
    last = np.nan_to_num(widths[-1], nan=np.inf)
    # A search that collapsed onto a point grows as well, back to where it should be: both the
    # growth and the width must be large.
    widest = np.where(np.minimum(last, last / first) > _DOUBTFUL, last, 0.0)
    if widest.any():
        worst = int(np.argmax(widest))
        _refuse(target, names, worst, float(first[worst]), float(last[worst]))
    return here, values


def _round(
    rng: np.random.Generator,
    z: np.ndarray,
    log_z: np.ndarray,
    log_gamma: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray, float]:
    """Random-walk moves along differences of particles: where they are, their log densities, and
    the share of moves that was accepted.
    """
    (num, dim), accepted = z.shape, 0.0
    moves = _num_moves(dim)
    for _ in range(moves):
        one, other = rng.integers(num, size=(2, num))
        size = 2.38 / (2 * dim) ** 0.5 * np.exp(rng.normal(size=(num, 1)) - 0.5)
        proposal = z + size * (z[one] - z[other])
        log_new = log_gamma(proposal)
        with np.errstate(invalid="ignore"):
            accept = np.log(rng.uniform(size=num)) < log_new - log_z
        accepted += float(np.mean(accept)) / moves
        z = np.where(accept[:, None], proposal, z)
        log_z = np.where(accept, log_new, log_z)
    return z, log_z, accepted


def _is_flat(
    z: np.ndarray, centre: np.ndarray, log_gamma: Callable[[np.ndarray], np.ndarray]
) -> bool:
    """Whether the density does not fall along the direction in which the particles are widest."""
    away = z - centre
    scale = np.abs(away).max()
    _, _, directions = np.linalg.svd(away / scale, full_matrices=False)
    along = (away @ directions[0])[:, None] * directions[0]
    gain = log_gamma(z - along / 2) - log_gamma(z)
    return not np.median(gain[np.isfinite(gain)] if np.isfinite(gain).any() else [0.0]) > _FALLS


def _num_moves(dim: int) -> int:
    """In a round."""
    return min(max(10, dim // 2), 50)
