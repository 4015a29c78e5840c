"""Roots of covariances in many dimensions: a width for each coordinate, and a few directions that
are wider or narrower than those say. A product with one costs as much as reading a few particles,
where a full root costs dim² operations.

How many directions there are is one of a few numbers, so that one program serves many roots. How
far each is stretched is what particles that were held out say, and nothing where they say nothing.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.affine import Data, held_out_spectrum
from nestedvi.densities.base import AbstractSampleable, check_shape
from nestedvi.randomness import generator

__all__ = [
    "FULL_DIM",
    "LowRankNormal",
    "LowRankRoot",
    "low_rank_bulk_root",
    "low_rank_of",
    "low_rank_root",
]

# Up to this dimension a full root costs no more than the density and the noise of a move.
FULL_DIM = 200
# Particles say no more than so many directions; of a root that is known there are as many as lose
# no more than so many nats.
_RANK, _RANKS, _LOSS = 32, (32, 64, 128, 256), 0.25
# With fewer particles for each dimension than this a direction is made of the particles themselves,
# and moves along it are not those of a metric that does not know them.
_FEW = 4
# Degrees of freedom and rounds of the weights that particles far out lose.
_FREEDOM, _ROUNDS = 3.0, 4
_LEAST = 1e-12

Vector = Float[Array, " dim"]


class LowRankRoot(eqx.Module):
    """diag(scales) (I + V diag(stretches − 1) Vᵀ) with orthonormal columns V: a root of a
    covariance. It multiplies a vector or, from the right, rows of them.

    Args:
        scales: the widths of the coordinates, shape (dim,).
        directions: the columns V, shape (dim, rank).
        stretches: by how much each direction is wider, shape (rank,).

    Example:
        ```python
        root = nvi.densities.LowRankRoot(jnp.ones(3), jnp.eye(3)[:, :1], jnp.array([5.0]))
        root @ jnp.ones(3)
        ```
    """

    scales: Vector | np.ndarray
    directions: Float[Array, "dim rank"] | np.ndarray
    stretches: Float[Array, " rank"] | np.ndarray

    # NumPy leaves products with it to the methods below.
    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, int]:
        return (self.scales.shape[-1],) * 2

    @property
    def log_det(self) -> Scalar:
        """log |det|."""
        return jnp.sum(jnp.log(jnp.abs(self.scales))) + jnp.sum(jnp.log(jnp.abs(self.stretches)))

    def _stretched(self, rows: Any, stretches: Any) -> Any:
        return rows + ((rows @ self.directions) * (stretches - 1)) @ self.directions.T

    def __matmul__(self, v: Vector) -> Vector:
        return self.apply(v)

    def __rmatmul__(self, rows: Any) -> Any:
        return self._stretched(rows * self.scales, self.stretches)

    def apply(self, rows: Any) -> Any:
        """The root times every row, shape (…, dim)."""
        return self.scales * self._stretched(rows, self.stretches)

    def solve(self, rows: Any) -> Any:
        """The inverse times every row, shape (…, dim)."""
        return self._stretched(rows / self.scales, 1 / self.stretches)

    @property
    def full(self) -> Float[np.ndarray, "dim dim"]:
        """As a matrix."""
        return np.asarray(self.apply(np.eye(self.shape[0]))).T


class LowRankNormal(AbstractSampleable):
    """N(mean, R Rᵀ) with a `LowRankRoot` R. An optimiser may move what it likes but the directions:
    where those are no longer orthonormal it is not normalised.
    """

    mean: Vector
    root: LowRankRoot

    def log_gamma(self, z: Vector) -> Scalar:
        check_shape(z, self.mean.shape, "This LowRankNormal")
        eps = self.root.solve(z - self.mean)
        return -0.5 * jnp.sum(eps**2) - self.root.log_det - 0.5 * len(z) * np.log(2 * np.pi)

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.mean.dtype)

    @property
    def reparameterised(self) -> bool:
        return True

    def sample(self, key: Key) -> Vector:
        return self.mean + self.root @ jax.random.normal(key, self.mean.shape, self.mean.dtype)

    @property
    def drawn_on_host(self) -> bool:
        return True

    def sample_many(self, key: Key, num: int) -> Float[np.ndarray, "num dim"]:
        mean, root = self._on_host
        eps = generator(key).normal(size=(num, len(mean)))
        return (mean + root.apply(eps)).astype(self.mean.dtype)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        mean, root = self._on_host
        eps = root.solve(np.asarray(z, np.float64) - mean)
        log_det = np.log(np.abs(root.scales)).sum() + np.log(np.abs(root.stretches)).sum()
        return -0.5 * np.sum(eps**2, axis=1) - log_det - 0.5 * len(mean) * np.log(2 * np.pi)

    @property
    def _on_host(self) -> tuple[np.ndarray, LowRankRoot]:
        root = jax.tree.map(lambda x: np.asarray(x, np.float64), self.root)
        return np.asarray(self.mean, np.float64), root


def low_rank_root(z: Data, weight: np.ndarray | None = None) -> LowRankRoot:
    """A root of the covariance of particles, on the host and in double precision; `weight` is how
    much each of them counts.
    """
    z = np.asarray(z, np.float64)
    away, scales = _widths(z, np.ones(len(z)) if weight is None else weight / np.mean(weight))
    return _of_spectrum(scales, *held_out_spectrum(away / scales), _RANK)[1]


def _widths(z: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted distances from the mean, and the width of each coordinate; weights are one in the
    mean.
    """
    away = np.sqrt(weight)[:, None] * (z - weight @ z / len(z))
    return away, np.sqrt(np.mean(away**2, axis=0)) + _LEAST


def low_rank_bulk_root(z: Data) -> LowRankRoot:
    """A root for where most particles are: those far out count less, as in the likeliest t
    distribution with independent coordinates. Few particles say widths and no directions.
    """
    z = np.asarray(z, np.float64)
    dim, weight = z.shape[1], np.ones(len(z))
    for _ in range(_ROUNDS):
        share = weight / weight.sum()
        square_widths = share @ (z - share @ z) ** 2 + _LEAST
        square = np.sum((z - share @ z) ** 2 / square_widths, axis=1)
        weight = (_FREEDOM + dim) / (_FREEDOM + square)
    if len(z) >= _FEW * dim:
        return low_rank_root(z, weight)
    # In arrays of the same shapes, for the same program.
    directions = np.eye(dim)[:, :_RANK]
    scales = _widths(z, weight / np.mean(weight))[1]
    return LowRankRoot(scales, directions, np.ones(directions.shape[1]))


def low_rank_of(root: Float[np.ndarray, "dim dim"]) -> LowRankRoot:
    """The nearest to a full root that has the same widths of coordinates, or nearly."""
    root = np.asarray(root, np.float64)
    scales = np.linalg.norm(root, axis=1) + _LEAST
    values, vectors = np.linalg.eigh((root / scales[:, None]) @ (root / scales[:, None]).T)
    for rank in _RANKS:
        loss, low_rank = _of_spectrum(scales, values, vectors, rank)
        if loss < _LOSS:
            break
    return low_rank


def _of_spectrum(
    scales: np.ndarray, values: np.ndarray, vectors: np.ndarray, rank: int
) -> tuple[float, LowRankRoot]:
    """The directions whose variances are furthest from the middle one; the mean of the others'
    variances is put into the widths. And the divergence of the two Gaussians, in nats.
    """
    values = np.maximum(values, _LEAST)
    far = np.argsort(-np.abs(np.log(values / np.median(values))), kind="stable")
    kept, rest = far[:rank], far[rank:]
    common = float(np.mean(values[rest])) if len(rest) else 1.0
    loss = 0.5 * float(-np.sum(np.log(values[rest] / common)))
    root = LowRankRoot(scales * common**0.5, vectors[:, kept], np.sqrt(values[kept] / common))
    return loss, root
