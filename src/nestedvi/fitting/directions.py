"""Directions along which particles are least Gaussian: coordinates that do not depend on the
user's.
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from nestedvi._types import Key

__all__ = ["covariance_root", "independent_directions", "lower_root", "rulers_first", "whiten"]

Rows = Float[Array, "data dim"]
Square = Float[Array, "dim dim"]
Data = Float[np.ndarray, "data dim"] | Rows

# E[log cosh ε] of a standard normal.
_NORMAL_LOG_COSH = 0.374567
# How far above the usual strength a ruler is, and where particles count as far out.
_STANDS_OUT, _FAR_OUT = 2.5, 3.0


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


def _orthogonal(rows: Square) -> Square:
    """The nearest orthogonal matrix."""
    left, _, right = jnp.linalg.svd(rows)
    return left @ right


def independent_directions(key: Key, u: Rows, iterations: int = 300) -> Square:
    """An orthogonal matrix whose rows are the independent components of whitened data, the most
    Gaussian first.

    FastICA with all rows at once (Hyvärinen 1999). What is most Gaussian comes first because it
    tends to rule the others: in a funnel the logarithm of the width is Gaussian and what it widens
    is not.
    """

    def step(_, rows: Square) -> Square:
        g = jnp.tanh(u @ rows.T)
        return _orthogonal(g.T @ u / u.shape[0] - jnp.mean(1 - g**2, axis=0)[:, None] * rows)

    start = _orthogonal(jax.random.normal(key, (u.shape[1], u.shape[1]), u.dtype))
    rows = jax.lax.fori_loop(0, iterations, step, start)
    y = jnp.abs(u @ rows.T)
    # log cosh without overflow.
    contrast = jnp.mean(y + jnp.log1p(jnp.exp(-2 * y)) - jnp.log(2.0), axis=0) - _NORMAL_LOG_COSH
    return rows[jnp.argsort(contrast**2)]


def _across(form: Square, d: Float[Array, " dim"]) -> Square:
    """A quadratic form on what is orthogonal to d."""
    project = jnp.eye(len(d), dtype=d.dtype) - jnp.outer(d, d)
    return project @ form @ project


def rulers_first(u: Rows, rows: Square, most: int) -> Square:
    """The rows with those first, at most `most`, along which the spread of others changes, turned
    to be those directions.

    With y = rows · u and T_abc = E[y_a y_b y_c], a direction d rules the spread across it: T(d)_ab
    = Σ_c T_abc d_c is large for a and b orthogonal to d. Candidates are the eigenvectors of Σ_ab
    T_ab T_abᵀ; of what is ruled T has entries as well, but not across it. The own third moments
    T_aaa do not count: independent coordinates stay as they are.
    """
    y = u @ rows.T
    num, dim = y.shape
    # A few particles far out would make up a third moment alone.
    y = y * jnp.minimum(1.0, _FAR_OUT * dim**0.5 / jnp.linalg.norm(y, axis=1, keepdims=True))
    # One slice at a time: all at once would be the data times the square of their dimension.
    moment = jax.lax.map(lambda column: (column[:, None] * y).T @ y / num, y.T)
    index = jnp.arange(dim)
    moment = moment.at[index, index, index].set(0.0)
    found = jnp.linalg.eigh(jnp.einsum("abc,abd->cd", moment, moment))[1]
    across = jax.vmap(lambda d: _across(moment @ d, d), in_axes=1)(found)
    strengths = jnp.sum(across**2, axis=(1, 2))
    rank = jnp.argsort(strengths)
    found, strengths = found[:, rank], strengths[rank]
    frame, order = jnp.eye(dim, dtype=y.dtype), index + dim
    for i in range(1, min(most, dim - 1) + 1):
        ruler, rules = found[:, -i], strengths[-i] > _STANDS_OUT * jnp.median(strengths)
        # The coordinate nearest to the ruler gives way to it, and the others make room.
        nearest = jnp.argmax(jnp.abs(frame @ ruler))
        turned = (frame - jnp.outer(frame @ ruler, ruler)).at[nearest].set(ruler)
        frame = jnp.where(rules, _orthogonal(turned), frame)
        order = jnp.where(rules, order.at[nearest].set(i), order)
    return (frame @ rows)[jnp.argsort(order)]
