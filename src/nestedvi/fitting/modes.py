"""Modes of a density and the shape of the density around each: where to climb from, many climbs,
then Hessians.

Climbs begin around the origin, at particles that a rough run has left, and far away. The density is
asked for gradients in batches and for products with its Hessian, each compiled once. Nothing here
weights a particle.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from nestedvi.compilation import compiled_soon
from nestedvi.densities.affine import lower_root
from nestedvi.densities.base import AbstractDensity, log_values
from nestedvi.densities.mixtures import CorrelatedMixture, squares_on_host
from nestedvi.fitting.climb import Climbed, climb
from nestedvi.host import is_on_host, on_host

__all__ = [
    "MOST_MODES",
    "NUM_STARTS",
    "Modes",
    "find_modes",
    "mean_curvature",
    "search_modes",
    "slopes",
    "survey",
]

# A direction in which the density is flat is taken to be this wide, in the units of the search.
_WIDEST = 30.0
# Ends of two optimisations are one mode if a Gaussian of either's shape would not tell them apart.
# Where the density is so many nats above a mode's top there is another: a spike inside of a slab.
_SAME, _HIGHER = 2.0, 3.0
_NEWTON_STEPS = 8
# A mode whose share of the mass, by Laplace's approximation, is below e to minus this is none.
_NEGLIGIBLE = 30.0
# Newton steps are tried whole and shortened, all at once.
_SIZES = (1.0, 0.3, 0.1, 0.03)
# So many climbs at once, on a CPU.
_PIECE = 64
# The rounds of a climb: a narrow ridge takes many. What the first climbs did not reach in so many
# is no mode that later ones end in soon.
_FIRST_CLIMB, _LATER_CLIMB = 400, 150
# A survey's climbs are so many rounds long, and so many of the best that are elsewhere then go on.
_SHORT_CLIMB, _GO_ON = 12, 128
# Climbs begin at this many places. Where they end at several modes there are more of them, for each
# mode at least the second number: one that is found half as often as the others is then missed
# once in 10⁵ times.
NUM_STARTS, _STARTS_A_MODE, MOST_MODES = 64, 25, 60
# A survey for what those miss: so many short climbs, so many values of the density (fewer where a
# draw is large), between which widths, and how many of the values are followed up in each of so
# many ranges of width. For its cost a value finds five times as many narrow modes as a climb.
_SURVEY, _VALUES, _SURVEY_WIDTHS = 512, 98_304, (0.5, 32.0)
_NUMBERS, _FOLLOWED, _RANGES = 10_000_000, 8, 16
# Widths of the places in units of the search: near ones, and far ones for what those are blind to.
_WIDTHS = (0.5, 2.0, 8.0)


class Modes(NamedTuple):
    """Places of the modes, best first, log γ there, and a lower root of the inverse of −∂² log γ at
    each; `gradients` is what was asked of the density, a product with the Hessian counted as two.
    """

    z: Float[np.ndarray, "modes dim"]
    log_gamma: Float[np.ndarray, " modes"]
    roots: Float[np.ndarray, "modes dim dim"]
    gradients: int

    @property
    def log_mass(self) -> Float[np.ndarray, " modes"]:
        """Laplace's approximation of the log mass of each mode. Of one that is flat in a direction
        it is no more than a bound in the units of the search.
        """
        log_det = np.log(np.abs(np.diagonal(self.roots, axis1=1, axis2=2))).sum(axis=1)
        return self.log_gamma + log_det + 0.5 * self.z.shape[1] * np.log(2 * np.pi)

    @property
    def total_log_mass(self) -> float:
        """Laplace's approximation of the log mass of all modes that it can be told of."""
        log_mass = self.log_mass[self.curved]
        return float(scipy.special.logsumexp(log_mass)) if len(log_mass) else -np.inf

    @property
    def tops(self) -> Float[np.ndarray, "modes dim"]:
        """The places that are curved in all directions; all where none is. Climbs in heavy tails
        end on slopes, anywhere, and how many of those there are says nothing.
        """
        return self.z[self.curved] if self.curved.any() else self.z

    @property
    def is_complete(self) -> bool:
        """Whether there are some, and fewer than a search keeps: with as many there are more, and
        those at hand say little of the mass.
        """
        return 0 < len(self.z) < MOST_MODES

    @property
    def curved(self) -> np.ndarray:
        """Which modes are curved in all directions."""
        widths = np.linalg.norm(self.roots, ord=2, axis=(1, 2))
        return widths < 0.99 * _WIDEST


@compiled_soon
def _hessian(density: AbstractDensity, z: Float[Array, " dim"]) -> Float[Array, "dim dim"]:
    def column(direction):
        return jax.jvp(jax.grad(density.log_gamma), (z,), (direction,))[1]

    unit = jnp.eye(z.shape[0], dtype=z.dtype)
    return jax.lax.map(column, unit, batch_size=min(64, z.shape[0]))


@contextmanager
def _climbing(density: AbstractDensity, dim: int) -> Iterator["_Counted"]:
    """What climbs ask for values and gradients, where a round of them is answered soonest."""
    dtype = jnp.result_type(float)
    with on_host(density, _value_and_slope, jnp.zeros(dim, dtype), _PIECE) as there:
        yield _Counted(there, dtype)


def _value_and_slope(density: AbstractDensity, z: Float[Array, " dim"]) -> tuple[Array, Array]:
    return jax.value_and_grad(density.log_gamma)(z)


class _Counted:
    """log γ, its derivatives and climbs, in pieces of one size, with the gradients counted."""

    def __init__(self, density: AbstractDensity, dtype: Any):
        self.density, self.dtype, self.gradients = density, dtype, 0

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        there = self.climb(z, rounds=0)
        return there.log_gamma, there.slope

    def climb(self, starts: np.ndarray, *, rounds: int) -> Climbed:
        # An accelerator takes as long for a whole survey as for one climb.
        piece = _PIECE if is_on_host() else _SURVEY
        ended = climb(self.density, starts, rounds=rounds, piece=piece)
        self.gradients += ended.gradients
        return ended

    def hessian(self, z: np.ndarray) -> np.ndarray:
        """Of −log γ."""
        self.gradients += 2 * len(z)
        return _curvature(self.density, z)


def _curvature(density: AbstractDensity, z: np.ndarray) -> np.ndarray:
    h = np.asarray(_hessian(density, jnp.asarray(z, jnp.result_type(float))), np.float64)
    return -(h + h.T) / 2


def _inverse_root(hessian: np.ndarray) -> np.ndarray:
    """A lower root of the inverse, with flat and rising directions given the largest width."""
    values, vectors = np.linalg.eigh(hessian)
    return lower_root(np.maximum(values, _WIDEST**-2.0) ** -0.5, vectors)


def _polish(
    ask: _Counted, z: np.ndarray, value: float, gradient: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Newton steps that stay only while they climb: the place, log γ and the root there; None where
    the Hessian is no number.
    """
    for i in range(_NEWTON_STEPS + 1):
        hessian = ask.hessian(z)
        if not np.isfinite(hessian).all():
            return None
        root = _inverse_root(hessian)
        step = root @ (root.T @ gradient)
        if i == _NEWTON_STEPS or step @ gradient < 1e-4:
            break
        tried = z + np.array(_SIZES)[:, None] * step
        values, gradients = ask(tried)
        best = int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))
        if not values[best] > value:
            break
        z, value, gradient = tried[best], values[best], gradients[best]
    return z, float(value), root


class _Kept:
    """Modes that were found, those of no mass among them: a climb that ends there finds nothing
    new.
    """

    def __init__(self, known: Modes | None):
        self.all: list[tuple[np.ndarray, float, np.ndarray]] = []
        if known is not None:
            self.all = list(zip(known.z, known.log_gamma, known.roots, strict=True))
        self.log_mass = [] if known is None else list(known.log_mass)
        self.inverses = [np.linalg.inv(root) for _, _, root in self.all]

    @property
    def count(self) -> int:
        """How many have mass."""
        return sum(not self.is_negligible(mass) for mass in self.log_mass)

    def is_negligible(self, log_mass: float) -> bool:
        return bool(self.log_mass) and log_mass < max(self.log_mass) - _NEGLIGIBLE

    def add(self, mode: tuple[np.ndarray, float, np.ndarray]) -> None:
        self.all.append(mode)
        self.inverses.append(np.linalg.inv(mode[2]))
        z, log_gamma, root = (np.asarray(x)[None] for x in mode)
        self.log_mass.append(float(Modes(z, log_gamma, root, 0).log_mass[0]))

    def knows(self, z: np.ndarray, log_gamma: float) -> bool:
        if not self.all:
            return False
        places, inverses = np.array([mode[0] for mode in self.all]), np.array(self.inverses)
        away = np.einsum("mij,mj->mi", inverses, z - places)
        is_no_higher = log_gamma < np.array([mode[1] for mode in self.all]) + _HIGHER
        return bool(np.any((np.mean(away**2, axis=1) < _SAME**2) & is_no_higher))

    def modes(self, dim: int, gradients: int) -> Modes:
        """Those that have mass."""
        kept = [
            mode
            for mode, mass in zip(self.all, self.log_mass, strict=True)
            if not self.is_negligible(mass)
        ]
        if not kept:
            return Modes(np.zeros((0, dim)), np.zeros(0), np.zeros((0, dim, dim)), gradients)
        z, log_gamma, roots = (np.array(x) for x in zip(*kept, strict=True))
        return Modes(z, log_gamma, roots, gradients)


def find_modes(
    density: AbstractDensity,
    starts: Float[np.ndarray, "starts dim"],
    *,
    most: int = 20,
    known: Modes | None = None,
) -> Modes:
    """The modes that climbs from `starts` end in, and those that were `known`; at most `most` of
    them, and none whose mass is negligible beside another's.
    """
    kept, dim = _Kept(known), np.shape(starts)[1]
    # At most so much more than log γ at its top is the log mass of a mode.
    widest = dim * (np.log(_WIDEST) + 0.5 * np.log(2 * np.pi))
    with _climbing(density, dim) as ask:
        ends = ask.climb(starts, rounds=_FIRST_CLIMB if known is None else _LATER_CLIMB)
        for i in np.argsort(-ends.log_gamma):
            top = ends.log_gamma[i]
            if not np.isfinite(top) or kept.is_negligible(top + widest) or kept.count == most:
                break
            if not kept.knows(ends.z[i], top):
                mode = _polish(ask, ends.z[i], top, ends.slope[i])
                if mode is not None and not kept.knows(mode[0], mode[1]):
                    kept.add(mode)
    return kept.modes(dim, ask.gradients)


def survey(
    density: AbstractDensity, starts: Float[np.ndarray, "starts dim"], known: Modes, *, most: int
) -> Modes:
    """Many short climbs, of which only those that do not come near a known mode go on: narrow modes
    far away, which few starts lead to.
    """
    with _climbing(density, np.shape(starts)[1]) as ask:
        short = ask.climb(starts, rounds=_SHORT_CLIMB)
    far = np.isfinite(short.log_gamma)
    for place, top, root in zip(known.z, known.log_gamma, known.roots, strict=True):
        square = squares_on_host(short.z, place[None], root[None])[0][:, 0]
        far &= (square >= _SAME**2 * len(place)) | (short.log_gamma > top + _HIGHER)
    order = np.argsort(-short.log_gamma)
    order = order[far[order]][:_GO_ON]
    if not len(order):
        return known._replace(gradients=ask.gradients)
    modes = find_modes(density, short.z[order], most=most, known=known)
    return modes._replace(gradients=modes.gradients + ask.gradients)


def slopes(density: AbstractDensity, z: Float[np.ndarray, "num dim"]) -> np.ndarray:
    """∂ log γ at many places, by the program that climbs use."""
    with _climbing(density, np.shape(z)[1]) as ask:
        return ask(np.asarray(z))[1]


def mean_curvature(density: AbstractDensity, z: Float[np.ndarray, "num dim"]) -> np.ndarray:
    """The mean of −∂² log γ over several places, by the program that modes are polished with."""
    total = np.zeros(2 * z.shape[1:])
    for one in z:
        total += _curvature(density, one)
    return total / len(z)


def search_modes(
    rng: np.random.Generator, target: AbstractDensity, dim: int, particles: np.ndarray | None
) -> Modes:
    """Modes above places around the origin and above the pilot's particles, and those that a survey
    finds. Where there are several, climbs from places as wide apart as those known find more, until
    there were enough of them.
    """
    starts = rng.normal(size=(NUM_STARTS, dim)) * np.resize(_WIDTHS, NUM_STARTS)[:, None]
    if particles is not None:
        half = NUM_STARTS // 2
        starts[:half] = particles[rng.integers(len(particles), size=half)]
    modes = find_modes(target, starts, most=MOST_MODES)
    gradients, done = modes.gradients, 0
    if particles is not None and modes.is_complete:
        starts = _wide_draws(rng, _SURVEY, dim)
        modes = survey(target, starts, modes, most=MOST_MODES)
        gradients += modes.gradients
        if len(modes.z) < MOST_MODES:
            values = min(_VALUES, _NUMBERS // dim)
            starts = _unexplained(target, _wide_draws(rng, values, dim), modes)
            modes = find_modes(target, starts, most=MOST_MODES, known=modes)
            # A value costs a third of a gradient, or less.
            gradients += modes.gradients + values // 3
    while modes.is_complete and len(tops := modes.tops) > 1 and done < _STARTS_A_MODE * len(tops):
        centre, spread = tops.mean(axis=0), 1.2 * tops.std(axis=0) + 1.0
        starts = centre + spread * rng.normal(size=(NUM_STARTS, dim))
        modes = find_modes(target, starts, most=MOST_MODES, known=modes)
        gradients, done = gradients + modes.gradients, done + NUM_STARTS
    return modes._replace(gradients=gradients)


def _wide_draws(rng: np.random.Generator, num: int, dim: int) -> np.ndarray:
    """Draws of many widths, narrow ones first."""
    low, high = np.log(_SURVEY_WIDTHS)
    widths = np.exp(np.sort(rng.uniform(float(low), float(high), size=(num, 1)), axis=0))
    return widths * rng.normal(size=(num, dim))


def _unexplained(target: AbstractDensity, z: np.ndarray, modes: Modes) -> np.ndarray:
    """The draws at which the density is furthest above the Gaussians at the modes, some of every
    width: a narrow mode far away shows in values where few climbs begin.
    """
    shapes = CorrelatedMixture(modes.z, modes.roots, modes.log_mass)
    values = log_values(target, z) - shapes.log_prob_many(z)
    values = np.where(np.isfinite(values), values, -np.inf)
    ranges = np.array_split(np.arange(len(z)), _RANGES)
    return z[np.concatenate([rows[np.argsort(-values[rows])[:_FOLLOWED]] for rows in ranges])]
