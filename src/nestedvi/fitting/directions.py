"""Directions along which particles are least Gaussian: coordinates that do not depend on the
user's.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Key

__all__ = ["independent_directions", "scale_coordinates_first"]

Rows = Float[Array, "data dim"]
Square = Float[Array, "dim dim"]

# E[log cosh ε] of a standard normal.
_NORMAL_LOG_COSH = 0.374567
# How far above the usual strength one that sets scales is, and where particles count as far out.
_STANDS_OUT, _FAR_OUT = 2.5, 3.0


def _orthogonal(rows: Square) -> Square:
    """The nearest orthogonal matrix."""
    left, _, right = jnp.linalg.svd(rows)
    return left @ right


def independent_directions(key: Key, u: Rows, iterations: int = 300) -> Square:
    """An orthogonal matrix whose rows are the independent components of whitened data, the most
    Gaussian first.

    FastICA with all rows at once (Hyvärinen 1999). What is most Gaussian comes first because it
    tends to set the scale of others: in a funnel the logarithm of the width is Gaussian and what it
    widens is not.
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


def scale_coordinates_first(u: Rows, rows: Square, most: int) -> Square:
    """The rows with those first, at most `most`, that set the scale of others, turned to be those
    directions.

    With y = rows · u and T_abc = E[y_a y_b y_c], a direction d sets the scale across it where
    T(d)_ab = Σ_c T_abc d_c is large for a and b orthogonal to d. Candidates are the eigenvectors of
    Σ_ab T_ab T_abᵀ; of what is scaled T has entries as well, but not across it. The own third
    moments T_aaa do not count: independent coordinates stay as they are.
    """
    y = u @ rows.T
    num, dim = y.shape
    # A few particles far out would make up a third moment alone.
    y = y * jnp.minimum(1.0, _FAR_OUT * dim**0.5 / jnp.linalg.norm(y, axis=1, keepdims=True))
    # One slice at a time: all at once would be the data times the square of their dimension.
    moment = jax.lax.map(lambda column: (column[:, None] * y).T @ y / num, y.T)
    index = jnp.arange(dim)
    moment = moment.at[index, index, index].set(0.0)
    candidates = jnp.linalg.eigh(jnp.einsum("abc,abd->cd", moment, moment))[1]
    across = jax.vmap(lambda d: _across(moment @ d, d), in_axes=1)(candidates)
    strengths = jnp.sum(across**2, axis=(1, 2))
    rank = jnp.argsort(strengths)
    candidates, strengths = candidates[:, rank], strengths[rank]
    frame, order = jnp.eye(dim, dtype=y.dtype), index + dim
    for i in range(1, min(most, dim - 1) + 1):
        direction = candidates[:, -i]
        sets_scales = strengths[-i] > _STANDS_OUT * jnp.median(strengths)
        # The coordinate nearest to it gives way to it, and the others make room.
        nearest = jnp.argmax(jnp.abs(frame @ direction))
        turned = (frame - jnp.outer(frame @ direction, direction)).at[nearest].set(direction)
        frame = jnp.where(sets_scales, _orthogonal(turned), frame)
        order = jnp.where(sets_scales, order.at[nearest].set(i), order)
    return (frame @ rows)[jnp.argsort(order)]
