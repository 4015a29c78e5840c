"""One affine change of coordinates, z = shift + matrix · y, densities seen through it, and the
coordinates that particles themselves give.

`AffineMap` is the map. `Affine` is the density of z for y from a normalised density, and `Pullback`
is the density of y for z from any density. Determinants are counted, so both keep log Z. They are
computed from the matrix at hand: an optimiser may move it, and the density stays normalised.

Roots of covariances are matrices of such maps: of particles, of their bulk, and of matrices that
rounding has made singular. They are computed on the host, in double precision. What is not affine
does not live here.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, check_shape

__all__ = [
    "Affine",
    "AffineMap",
    "Pullback",
    "bulk_root",
    "covariance_root",
    "diagonal_map",
    "held_out_spectrum",
    "in_units_of",
    "lower_root",
    "shrunk_root",
    "whiten",
]

Vector = Float[Array, " dim"]
Data = Float[np.ndarray, "data dim"] | Float[Array, "data dim"]
# So many particles say enough about the shape of their bulk; with fewer for each dimension than the
# second number their covariance is shrunk.
_ENOUGH, _FEW = 500, 10
# Weights of particles that change by less than this have settled.
_SETTLED = 0.01
# Particles are parted in so many runs of neighbours, which may share ancestors.
_RUNS = 10


class InverseMap(eqx.Module):
    """y = inverse · (z − shift), with the log determinant of the map that it inverts."""

    shift: Vector
    inverse: Float[Array, "dim dim"] | Vector
    log_det: Scalar

    def __call__(self, z: Vector) -> Vector:
        if self.inverse.ndim == 1:
            return self.inverse * (z - self.shift)
        return self.inverse @ (z - self.shift)


class AffineMap(eqx.Module):
    """z = shift + matrix · y; a vector in place of the matrix is its diagonal."""

    shift: Vector
    matrix: Float[Array, "dim dim"] | Vector

    def __init__(self, shift, matrix):
        self.shift, self.matrix = jnp.asarray(shift), jnp.asarray(matrix)

    def __call__(self, y: Float[Array, "*rest dim"]) -> Float[Array, "*rest dim"]:
        if self.matrix.ndim == 1:
            return self.shift + self.matrix * y
        if y.ndim == 1:
            return self.shift + self.matrix @ y
        return self.shift + y @ self.matrix.T

    @property
    def log_det(self) -> Scalar:
        """log |det matrix|."""
        if self.matrix.ndim == 1:
            return jnp.sum(jnp.log(jnp.abs(self.matrix)))
        return jnp.linalg.slogdet(self.matrix)[1]

    def inverse(self) -> InverseMap:
        """The way back. It costs as much as a factorisation: compute it once for many particles."""
        if self.matrix.ndim == 1:
            return InverseMap(self.shift, 1 / self.matrix, self.log_det)
        factors, pivots = jax.scipy.linalg.lu_factor(self.matrix)
        unit = jnp.eye(self.matrix.shape[0], dtype=self.matrix.dtype)
        inverse = jax.scipy.linalg.lu_solve((factors, pivots), unit)
        log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factors))))
        return InverseMap(self.shift, inverse, log_det)


class Affine(AbstractSampleable):
    """The density of shift + matrix · y for y from a normalised `part`.

    `back` is None unless the density was `precomputed`.
    """

    part: AbstractSampleable
    map: AffineMap
    back: InverseMap | None

    def __init__(self, part: AbstractSampleable, shift, matrix, back: InverseMap | None = None):
        self.part, self.map, self.back = part, AffineMap(shift, matrix), back

    def log_gamma(self, z: Vector) -> Scalar:
        back = self.map.inverse() if self.back is None else self.back
        return self.part.log_gamma(back(z)) - back.log_det

    def precomputed(self) -> "Affine":
        return Affine(self.part.precomputed(), self.map.shift, self.map.matrix, self.map.inverse())

    @property
    def log_Z(self) -> Scalar:
        return self.part.log_Z

    @property
    def reparameterised(self) -> bool:
        return self.part.reparameterised

    def sample(self, key: Key) -> Vector:
        return self.map(self.part.sample(key))

    @property
    def drawn_on_host(self) -> bool:
        return self.part.drawn_on_host

    def sample_many(self, key: Key, num: int) -> Float[np.ndarray, "num dim"]:
        shift, matrix = (np.asarray(x, np.float64) for x in (self.map.shift, self.map.matrix))
        y = np.asarray(self.part.sample_many(key, num), np.float64)
        z = shift + (matrix * y if matrix.ndim == 1 else y @ matrix.T)
        return z.astype(self.map.shift.dtype)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        shift, matrix = (np.asarray(x, np.float64) for x in (self.map.shift, self.map.matrix))
        away = np.asarray(z, np.float64) - shift
        if matrix.ndim == 1:
            y, log_det = away / matrix, float(np.sum(np.log(np.abs(matrix))))
        else:
            y = np.asarray(np.linalg.solve(matrix, away.T).T, np.float64)
            log_det = float(np.linalg.slogdet(matrix)[1])
        return self.part.log_prob_many(y.astype(self.map.shift.dtype)) - log_det


class Pullback(AbstractDensity):
    """γ(map(y)) |det map|: a density in coordinates y with z = map(y), and the same log Z.

    ```python
    unit = nvi.densities.AffineMap(jnp.full(2, 3.0), jnp.full(2, 10.0))
    nvi.densities.Pullback(nvi.targets.ring(), unit)
    ```
    """

    density: AbstractDensity
    map: AffineMap

    def log_gamma(self, z: Vector) -> Scalar:
        check_shape(z, self.map.shift.shape, "Pullback")
        return self.density.log_gamma(self.map(z)) + self.map.log_det

    def precomputed(self) -> "Pullback":
        return Pullback(self.density.precomputed(), self.map)


def diagonal_map(shift: np.ndarray, scale: np.ndarray) -> AffineMap:
    """A map from arrays on the host, in the precision at hand."""
    dtype = jnp.result_type(float)
    return AffineMap(jnp.asarray(shift, dtype), jnp.asarray(scale, dtype))


def in_units_of(
    target: Pullback, z: Float[Array, "particles dim"] | np.ndarray, *, width: float = 1.0
) -> Pullback:
    """The same density in coordinates where these particles are centred and `width` wide."""
    z = np.asarray(z, np.float64)
    shift, unit = (np.asarray(x, np.float64) for x in (target.map.shift, target.map.matrix))
    there = diagonal_map(shift + unit * z.mean(axis=0), unit * z.std(axis=0) / width)
    return Pullback(target.density, there)


def lower_root(scales: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """A lower triangular root of V diag(scales²) Vᵀ, whatever its condition is."""
    root = np.transpose(np.linalg.qr((vectors * scales).T, mode="r"))
    return root * np.where(np.diag(root) < 0, -1.0, 1.0)


def covariance_root(covariance: np.ndarray) -> np.ndarray:
    """A lower triangular root, also of a covariance that rounding has made singular."""
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return lower_root(np.sqrt(np.maximum(values, 1e-14 * values.max() + 1e-300)), vectors)


def whiten(z: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean m, root L of the covariance, and u = L⁻¹ (z − m); on the host, in double precision."""
    z = np.asarray(z, np.float64)
    mean, dim = z.mean(axis=0), z.shape[1]
    covariance = np.cov(z.T).reshape(dim, dim)
    # A direction without spread (one point, or fewer particles than dimensions) still gets a width.
    ridge = 1e-6 * np.trace(covariance) / dim + 1e-20
    root = np.linalg.cholesky(covariance + ridge * np.eye(dim))
    return mean, root, scipy.linalg.solve_triangular(root, (z - mean).T, lower=True).T


def held_out_spectrum(
    u: Float[np.ndarray, "data dim"],
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
    """Variances, and directions as columns, of centred particles that may be few for their
    dimension.

    An eigenvalue of a sample is too large if it is large, and too small if it is small. So each is
    replaced by the variance, along the eigenvector of one half of the particles, of the other half.
    """
    # Importing nestedvi does not import it, and few posteriors need it.
    from scipy.optimize import isotonic_regression

    held_out = np.arange(len(u)) * _RUNS // len(u) % 2 == 0
    _, half = np.linalg.eigh(u[~held_out].T @ u[~held_out])
    values = isotonic_regression(np.mean((u[held_out] @ half) ** 2, axis=0)).x
    return values, np.linalg.eigh(u.T @ u)[1]


def shrunk_root(z: Data, root: np.ndarray | None = None) -> np.ndarray:
    """A lower root of the covariance of particles that are few for their dimension, with variances
    that were held out: in the coordinates of `root`, a root of what the covariance is near; without
    one, in units of the particles' standard deviations.
    """
    z = np.asarray(z, np.float64)
    root = np.diag(z.std(axis=0) + 1e-20) if root is None else root
    u = scipy.linalg.solve_triangular(root, (z - z.mean(axis=0)).T, lower=True).T
    values, vectors = held_out_spectrum(u)
    return lower_root(np.sqrt(values + 1e-12), root @ vectors)


def bulk_root(z: Data, freedom: float = 3.0, iterations: int = 8) -> np.ndarray:
    """A root of the scatter matrix of the likeliest t distribution: the covariance's shape where
    most particles are; on the host, in double precision.

    The few that are far out count less, as a funnel's mouth should for steps that have to fit its
    middle as well. Of fewer than ten particles a dimension the scatter is shrunk.
    """
    mean, root, u = whiten(z)
    dim, is_few = u.shape[1], len(z) < _FEW * z.shape[1]
    # More particles say no more about a shape that is only a metric.
    u = u[:: max(1, len(u) // max(_ENOUGH, _FEW * dim))]
    centre, scatter, unit, weight = np.zeros(dim), np.eye(dim), np.eye(dim), np.ones(len(u))
    for _ in range(iterations):
        before, away = weight, u - centre
        square = np.einsum("ij,ij->i", away @ np.linalg.inv(scatter + 1e-6 * unit), away)
        weight = (freedom + dim) / (freedom + square)
        centre = weight @ u / weight.sum()
        scatter = (weight[:, None] * (u - centre)).T @ (u - centre) / len(u)
        if np.max(np.abs(weight - before)) < _SETTLED:
            break
    if is_few:
        # Not in coordinates that the same particles made white: what is held out must be new.
        away = np.asarray(z, np.float64) - (mean + root @ centre)
        return shrunk_root(np.sqrt(weight)[:, None] * away)
    return root @ np.linalg.cholesky(scatter + 1e-6 * unit)
