"""A log-Gaussian Cox process on a grid: counts in the cells of a square, their log intensity a
Gaussian field. The counts are simulated, always the same.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Scalar
from nestedvi.densities.base import AbstractDensity, check_shape
from nestedvi.targets.bayesian import log_normal

__all__ = ["CoxProcess"]

_SEED = 20211
_VARIANCE, _POINTS, _RANGE = 1.91, 126.0, 0.2


class CoxProcess(AbstractDensity):
    """Counts y_i ~ Poisson(exp(x_i)/M²) in the M × M cells of the unit square, with
    x ~ N(μ, K), K_ij = 1.91 exp(−|c_i − c_j|/0.2) for centres c of cells, and μ = log 126 − 1.91/2,
    so that 126 points are expected.

    The coordinates are whitened: x = μ + L z with K = L Lᵀ and z ~ N(0, I). Mean and variance are
    those that papers use for the Finnish pines; their range, 1/33 of the side, is shorter than a
    cell of a coarse grid. The counts are one draw of the model.
    """

    factor: Float[Array, "cells cells"]
    counts: Float[Array, " cells"]

    def __init__(self, side: int = 10) -> None:
        factor = np.linalg.cholesky(_covariance(side))
        self.factor = jnp.asarray(factor, dtype=jnp.result_type(float))
        self.counts = jnp.asarray(_simulated(factor), dtype=jnp.result_type(float))

    def log_gamma(self, z: Float[Array, " cells"]) -> Scalar:
        check_shape(z, self.counts.shape, "CoxProcess")
        log_mean = _log_mean(len(z)) + self.factor @ z
        # Counts of a Poisson distribution, with the constant that its likelihood has.
        log_seen = self.counts * log_mean - jnp.exp(log_mean)
        constant = jnp.sum(jax.scipy.special.gammaln(self.counts + 1))
        return jnp.sum(log_normal(z)) + jnp.sum(log_seen) - constant


def _log_mean(cells: int) -> float:
    """log of a cell's expected count where z = 0."""
    return float(np.log(_POINTS) - 0.5 * _VARIANCE - np.log(cells))


def _covariance(side: int) -> np.ndarray:
    axis = (np.arange(side) + 0.5) / side
    centres = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    distance = np.linalg.norm(centres[:, None] - centres[None], axis=-1)
    return _VARIANCE * np.exp(-distance / _RANGE)


def _simulated(factor: np.ndarray) -> np.ndarray:
    """One draw of the model. NumPy freezes what this kind of generator gives."""
    rng = np.random.RandomState(_SEED)
    field = factor @ rng.standard_normal(len(factor))
    return rng.poisson(np.exp(_log_mean(len(factor)) + field)).astype(float)
