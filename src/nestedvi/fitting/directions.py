"""Directions along which particles are least Gaussian: coordinates that do not depend on the
user's. On the host, with nothing to compile.
"""

import numpy as np
from jaxtyping import Float

from nestedvi._types import Key
from nestedvi.randomness import generator

__all__ = ["independent_directions", "scale_coordinates_first"]

Rows = Float[np.ndarray, "data dim"]
Square = Float[np.ndarray, "dim dim"]

# E[log cosh ε] of a standard normal.
_NORMAL_LOG_COSH = 0.374567
# How far above the usual strength one that sets scales is, and where particles count as far out.
_STANDS_OUT, _FAR_OUT = 2.5, 3.0
# Directions that turn less than this in a round, by their cosine, have settled; those of Gaussian
# coordinates never do.
_SETTLED, _ROUNDS = 1e-5, 150


def _orthogonal(rows: Square) -> Square:
    """The nearest orthogonal matrix."""
    left, _, right = np.linalg.svd(rows)
    return left @ right


def independent_directions(key: Key, u: Rows) -> Square:
    """An orthogonal matrix whose rows are the independent components of whitened data, the most
    Gaussian first.

    FastICA with all rows at once (Hyvärinen 1999). What is most Gaussian comes first because it
    tends to set the scale of others: in a funnel the logarithm of the width is Gaussian and what it
    widens is not.
    """
    num, dim = u.shape
    u = np.asarray(u, np.float32)
    rows = _orthogonal(generator(key).normal(size=(dim, dim)))
    for _ in range(_ROUNDS):
        g = np.tanh(u @ rows.T.astype(u.dtype))
        before = rows
        rows = _orthogonal(g.T @ u / num - np.mean(1 - g**2, axis=0)[:, None] * rows)
        if np.all(np.abs(np.sum(rows * before, axis=1)) > 1 - _SETTLED):
            break
    y = np.abs(u @ rows.T)
    # log cosh without overflow.
    contrast = np.mean(y + np.log1p(np.exp(-2 * y)) - np.log(2.0), axis=0) - _NORMAL_LOG_COSH
    return rows[np.argsort(contrast**2)]


def _across(form: Square, d: Float[np.ndarray, " dim"]) -> Square:
    """A quadratic form on what is orthogonal to d."""
    project = np.eye(len(d)) - np.outer(d, d)
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
    y = y * np.minimum(1.0, _FAR_OUT * dim**0.5 / np.linalg.norm(y, axis=1, keepdims=True))
    # One slice at a time: all at once would be the data times the square of their dimension.
    moment = np.stack([(column[:, None] * y).T @ y / num for column in y.T])
    index = np.arange(dim)
    moment[index, index, index] = 0.0
    candidates = np.linalg.eigh(np.einsum("abc,abd->cd", moment, moment))[1]
    strengths = np.array([np.sum(_across(moment @ d, d) ** 2) for d in candidates.T])
    rank = np.argsort(strengths)
    candidates, strengths = candidates[:, rank], strengths[rank]
    frame, order = np.eye(dim), index + dim
    for i in range(1, min(most, dim - 1) + 1):
        if not strengths[-i] > _STANDS_OUT * np.median(strengths):
            break
        # The coordinate nearest to it gives way to it, and the others make room.
        direction = candidates[:, -i]
        nearest = int(np.argmax(np.abs(frame @ direction)))
        frame = frame - np.outer(frame @ direction, direction)
        frame[nearest] = direction
        frame = _orthogonal(frame)
        order[nearest] = i
    return (frame @ rows)[np.argsort(order)]
