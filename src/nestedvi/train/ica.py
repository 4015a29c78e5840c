"""Directions along which particles are least Gaussian: coordinates that do not depend on the user's."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Key

__all__ = ["independent_directions", "whiten"]

Rows = Float[Array, "data dim"]
Square = Float[Array, "dim dim"]

# E[log cosh ε] of a standard normal.
_NORMAL_LOG_COSH = 0.374567


def whiten(z: Rows) -> tuple[Float[Array, " dim"], Square, Rows]:
    """Mean m, root L of the covariance, and u = L⁻¹ (z − m)."""
    mean, dim = jnp.mean(z, axis=0), z.shape[1]
    covariance = jnp.cov(z.T).reshape(dim, dim)
    # A direction without spread (one point, or fewer particles than dimensions) still gets a width.
    root = jnp.linalg.cholesky(covariance + (1e-6 * jnp.trace(covariance) / dim + 1e-20) * jnp.eye(dim, dtype=z.dtype))
    return mean, root, jax.scipy.linalg.solve_triangular(root, (z - mean).T, lower=True).T


def independent_directions(key: Key, u: Rows, iterations: int = 300) -> Square:
    """An orthogonal matrix whose rows are the independent components of whitened data, the most Gaussian first.

    FastICA with all rows at once (Hyvärinen 1999). What is most Gaussian comes first because it tends to rule the others: in a
    funnel the logarithm of the width is Gaussian and what it widens is not.
    """

    def orthogonal(rows: Square) -> Square:
        left, _, right = jnp.linalg.svd(rows)
        return left @ right

    def step(_, rows: Square) -> Square:
        g = jnp.tanh(u @ rows.T)
        return orthogonal(g.T @ u / u.shape[0] - jnp.mean(1 - g**2, axis=0)[:, None] * rows)

    start = orthogonal(jax.random.normal(key, (u.shape[1], u.shape[1]), u.dtype))
    rows = jax.lax.fori_loop(0, iterations, step, start)
    y = jnp.abs(u @ rows.T)
    # log cosh without overflow.
    contrast = jnp.mean(y + jnp.log1p(jnp.exp(-2 * y)) - jnp.log(2.0), axis=0) - _NORMAL_LOG_COSH
    return rows[jnp.argsort(contrast**2)]
