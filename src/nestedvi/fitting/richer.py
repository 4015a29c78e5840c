"""A mixture at the modes made richer: more components for a ridge that bends or for particles that
no mode explains, tails along single coordinates, the shapes that particles have; and as programs
take it. It looks for no mode that is not known.
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from nestedvi._types import Key
from nestedvi.densities.affine import covariance_root, shrunk_root, whiten
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.densities.low_rank import FULL_DIM, LowRankNormal, low_rank_of, low_rank_root
from nestedvi.densities.mixtures import Mixture, StudentMixture, squares_on_host
from nestedvi.densities.products import StudentProducts
from nestedvi.fitting.importance import (
    SHORT,
    Base,
    draw_weighted,
    refit,
    weigh,
)
from nestedvi.fitting.modes import Modes
from nestedvi.particles.weights import normalise_cut, systematic
from nestedvi.randomness import generator, split_on_host

__all__ = [
    "around_particles",
    "defended",
    "for_moves",
    "in_powers_of_two",
    "in_precision_at_hand",
    "low_rank_around_particles",
    "richer_base",
    "uncovered",
    "with_component",
    "with_particles",
]

T = TypeVar("T")
# A base has so many components at the least, up to this dimension.
_COMPONENTS, _SMALL_DIM = 8, 64
# Draws that are picked by weight, for centres; rounds that move those; steps of expectation
# maximisation before the base is drawn from.
_PICKS, _ROUNDS, _STEPS = 4000, 15, 4
# Components are so wide at first, in units of all draws: as wide as what they are to share.
_WIDTH = 0.9
# More particles than this share that no mode explains are another part of the mass.
_UNEXPLAINED = 0.05
# The share of the draws with tails in each coordinate, and their degrees of freedom.
_DEFENCE, _FREEDOM = 0.1, 4


def richer_base(
    key: Key, base: StudentMixture, target: AbstractDensity, *, num: int, components: int
) -> Base:
    """`components` of them, around centres of `num` weighted draws from the base and fitted to the
    draws.
    """
    key_draw, key_pick = split_on_host(key, 2)
    rng = generator(key_pick)
    z, log_ratio = draw_weighted(key_draw, base, target, num)
    z = z.astype(np.float64)
    picks = z[systematic(rng.uniform(), normalise_cut(log_ratio), _PICKS)]
    mean, root, white = whiten(picks)
    centres, share = _centres(rng, np.asarray(white), components)
    dtype = base.means.dtype
    richer: Base = StudentMixture(
        jnp.asarray(mean + centres @ root.T, dtype),
        jnp.asarray(np.repeat(_WIDTH * root[None], len(centres), axis=0), dtype),
        jnp.asarray(np.log(share), dtype),
        tails=base.tails,
        freedom=int(base.freedom),
    )
    for _ in range(_STEPS):
        richer = refit(richer, z, log_ratio)
    return richer


def with_component(base: StudentMixture, z: np.ndarray, share: float) -> StudentMixture:
    """The base and one Gaussian more, for particles that no mode explains: their share."""
    covariance = np.cov(z.T).reshape(z.shape[1], z.shape[1]) * 1.2
    root = covariance_root(covariance + 1e-6 * np.diag(np.diag(covariance)))
    share = min(share, 0.9)
    log_weights = scipy.special.log_softmax(np.asarray(base.log_weights)) + np.log1p(-share)
    dtype = base.means.dtype
    parts = (
        np.concatenate([base.means, z.mean(axis=0)[None]]),
        np.concatenate([base.roots, root[None]]),
        np.append(log_weights, np.log(share)),
    )
    arrays = (jnp.asarray(part, dtype) for part in parts)
    return StudentMixture(*arrays, tails=base.tails, freedom=int(base.freedom))


def uncovered(base: Base, target: AbstractDensity, z: np.ndarray, threshold: float) -> np.ndarray:
    """The particles whose log ratio is above the threshold: the base has too little there."""
    if not len(z):
        return z
    return z[weigh(base, target, z.astype(base.means.dtype)) > threshold]


def with_particles(
    base: StudentMixture, modes: Modes, target: AbstractDensity, z: np.ndarray
) -> StudentMixture:
    """A base at the modes, mended by the pilot's particles. Modes are not means: where the modes
    explain the particles, those say where the mass around each is. Where they do not (a slab around
    a spike), the particles get a component of their own.
    """
    log_mass = modes.log_mass.max() + np.log(np.exp(modes.log_mass - modes.log_mass.max()).sum())
    far = uncovered(base, target, z, log_mass + SHORT + 2 * z.shape[1] ** 0.5)
    if len(far) <= _UNEXPLAINED * len(z):
        refined = refit(base, z, np.zeros(len(z)))
        # A pilot may have missed modes that climbs found: half of the draws go where those say.
        weights = [scipy.special.log_softmax(np.asarray(b.log_weights)) for b in (base, refined)]
        return eqx.tree_at(lambda b: b.log_weights, refined, jnp.asarray(np.logaddexp(*weights)))
    if len(far) > 2 * z.shape[1]:
        return with_component(base, far, len(far) / len(z))
    return base


def around_particles(base: StudentMixture, z: np.ndarray) -> StudentMixture:
    """The mixture with the means and covariances of equally weighted particles, each of which
    counts for the component that it is likeliest from; neighbours may share ancestors.

    Tails are light: under heavy ones the likeliest scatter is too narrow to draw from in many
    dimensions. A component with no more rows than coordinates keeps its place and shape.
    """
    means, roots = (np.array(x, np.float64) for x in (base.means, base.roots))
    groups = _nearest(base, z)
    for m, rows in enumerate(groups):
        if len(rows) > z.shape[1]:
            means[m], roots[m] = rows.mean(axis=0), shrunk_root(rows, roots[m])
    arrays = (jnp.asarray(x, jnp.result_type(float)) for x in (means, roots, _log_sizes(groups)))
    return StudentMixture(*arrays)


def low_rank_around_particles(base: StudentMixture, z: np.ndarray) -> Mixture:
    """The same with Gaussians of few directions, for so many dimensions that full covariances would
    cost more in moves than the target does.
    """

    def part(rows: np.ndarray, mean: np.ndarray, root: np.ndarray) -> LowRankNormal:
        if len(rows) > z.shape[1]:
            mean, low_rank = rows.mean(axis=0), low_rank_root(rows)
        else:
            low_rank = low_rank_of(root)
        return LowRankNormal(jnp.asarray(mean), low_rank)

    groups, places = _nearest(base, z), (np.asarray(x) for x in (base.means, base.roots))
    parts = [part(*one) for one in zip(groups, *places, strict=True)]
    return in_precision_at_hand(Mixture(parts, _log_sizes(groups)))


def in_powers_of_two(base: Base) -> Base:
    """The same density with a number of components that is a power of two, eight or more where they
    are small, the first one as often as it takes: programs are compiled for a number of components,
    and the next base of as many modes, or nearly, finds them.
    """
    num, dim = base.means.shape
    least = _COMPONENTS if dim <= _SMALL_DIM else 1
    more = max(least, 1 << (num - 1).bit_length()) - num
    rows = np.append(np.arange(num), np.zeros(more, int))
    log_weights = np.asarray(base.log_weights)[rows]
    log_weights[rows == 0] -= np.log1p(more)
    parts = jax.tree.map(lambda x: np.asarray(x)[rows] if x.ndim else x, base)
    return eqx.tree_at(lambda b: b.log_weights, parts, log_weights)


def for_moves(base: Base) -> AbstractSampleable:
    """Much the same density for a program that evaluates it at every step of many particles. In
    many dimensions a full covariance would cost more there than the target does: components have
    light tails then, and widths and a few directions of their own.
    """
    ready: AbstractSampleable = in_powers_of_two(base)
    if isinstance(base, StudentMixture) and base.means.shape[1] > FULL_DIM:
        places = (np.asarray(x, np.float64) for x in (base.means, base.roots))
        parts = [LowRankNormal(mean, low_rank_of(root)) for mean, root in zip(*places, strict=True)]
        ready = Mixture(parts, np.asarray(base.log_weights))
    return in_precision_at_hand(ready)


def in_precision_at_hand(base: T) -> T:
    """With the numbers of the host as arrays of programs."""
    numbers, rest = eqx.partition(base, eqx.is_inexact_array_like)
    numbers = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.result_type(float)), numbers)
    return eqx.combine(numbers, rest)


def _nearest(base: StudentMixture, z: np.ndarray) -> list[np.ndarray]:
    """The rows that are likeliest from each component."""
    z, num = np.asarray(z, np.float64), len(base.means)
    if num == 1:
        return [z]
    squares, log_det = squares_on_host(z, base.means, base.roots)
    group = np.argmax(np.asarray(base.log_weights) - log_det - 0.5 * squares, axis=1)
    return [z[group == m] for m in range(num)]


def _log_sizes(groups: list[np.ndarray]) -> np.ndarray:
    return np.log([len(rows) + 1.0 for rows in groups])


def defended(base: Base, *, heavy: bool) -> AbstractSampleable:
    """With some draws whose coordinates have heavy tails, each its own; with none unless it is
    `heavy`, so that one program draws from both.

    A tail of the weights may be along single coordinates: in many dimensions a Student t of all
    together has next to no draws there, and what was never drawn cannot be seen in weights.
    """
    if not isinstance(base, StudentMixture):
        return base
    scales = np.linalg.norm(np.asarray(base.roots, np.float64), axis=-1)
    arrays = (base.means, jnp.asarray(scales, base.means.dtype), base.log_weights)
    products = StudentProducts(*arrays, freedom=_FREEDOM)
    share = _DEFENCE if heavy else 0.0
    with np.errstate(divide="ignore"):
        return Mixture((base, products), np.log([1 - share, share]))


def _centres(rng: np.random.Generator, u: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Of `num` groups at the most (k-means, from places that are far apart), and the share that
    each has.
    """
    centres = u[rng.integers(len(u), size=1)]
    nearest = _squares(u, centres)[:, 0]
    for _ in range(num - 1):
        # Picks on fewer places than there are components.
        if not nearest.sum() > 0:
            break
        centres = np.vstack([centres, u[rng.choice(len(u), p=nearest / nearest.sum())]])
        nearest = np.minimum(nearest, _squares(u, centres[-1:])[:, 0])
    for _ in range(_ROUNDS):
        group = _squares(u, centres).argmin(axis=1)
        size = np.bincount(group, minlength=len(centres))
        sums = np.zeros_like(centres)
        np.add.at(sums, group, u)
        centres = np.where(size[:, None] > 0, sums / np.maximum(size, 1)[:, None], centres)
    share = size + 1.0
    return centres, share / share.sum()


def _squares(u: np.ndarray, centres: np.ndarray) -> np.ndarray:
    squares = np.sum(u**2, axis=1)[:, None] - 2 * u @ centres.T + np.sum(centres**2, axis=1)
    return np.maximum(squares, 0.0)
