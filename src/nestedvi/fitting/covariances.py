"""Roots of covariances: of particles, of their bulk, and of matrices that rounding has made
singular. All on the host, in double precision.
"""

import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

__all__ = ["bulk_root", "covariance_root", "lower_root", "whiten"]

Data = Float[np.ndarray, "data dim"] | Float[Array, "data dim"]
# So many particles say enough about the shape of their bulk.
_ENOUGH = 500


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


def bulk_root(z: Data, freedom: float = 3.0, iterations: int = 8) -> np.ndarray:
    """A root of the scatter matrix of the likeliest t distribution: the covariance's shape where
    most particles are; on the host, in double precision.

    The few that are far out count less, as a funnel's mouth should for steps that have to fit its
    middle as well. Of fewer than ten particles a dimension it is in part the covariance's root.
    """
    _, root, u = whiten(z)
    dim = u.shape[1]
    # More particles say no more about a shape that is only a metric.
    u = u[:: max(1, len(u) // max(_ENOUGH, 10 * dim))]
    num, unit = len(u), np.eye(dim)
    centre, scatter = np.zeros(dim), unit
    for _ in range(iterations):
        precision = np.linalg.inv(scatter + 1e-6 * unit)
        square = np.einsum("ij,ij->i", (u - centre) @ precision, u - centre)
        weight = (freedom + dim) / (freedom + square)
        centre = weight @ u / weight.sum()
        scatter = (weight[:, None] * (u - centre)).T @ (u - centre) / num
    trust = min(1.0, num / (10 * dim))
    return root @ np.linalg.cholesky(trust * scatter + (1 - trust + 1e-6) * unit)
