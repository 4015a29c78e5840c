"""Modes of a density and the shape of the density around each: many climbs, then Hessians.

The density is asked for gradients in batches and for products with its Hessian, each compiled
once. Nothing here draws a sample.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from nestedvi.densities.base import AbstractDensity, in_pieces
from nestedvi.fitting.climb import climb
from nestedvi.fitting.directions import lower_root

__all__ = ["Modes", "find_modes", "survey"]

# A direction in which the density is flat is taken to be this wide, in the units of the search.
_WIDEST = 30.0
# Ends of two optimisations are one mode if a Gaussian of either's shape would not tell them apart.
_SAME = 2.0
_NEWTON_STEPS = 8
# Newton steps are tried whole and shortened, all at once.
_SIZES = (1.0, 0.3, 0.1, 0.03)
_PIECE = 64
# A survey's climbs are so many rounds long, and so many of the best that are elsewhere then go on.
_SHORT_CLIMB, _GO_ON = 12, 128


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
        """Laplace's approximation of the log mass of each mode."""
        log_det = np.log(np.abs(np.diagonal(self.roots, axis1=1, axis2=2))).sum(axis=1)
        return self.log_gamma + log_det + 0.5 * self.z.shape[1] * np.log(2 * np.pi)


@eqx.filter_jit
def _values_and_gradients(density: AbstractDensity, z: Float[Array, "piece dim"]) -> Any:
    return jax.vmap(jax.value_and_grad(density.log_gamma))(z)


@eqx.filter_jit
def _hessian(density: AbstractDensity, z: Float[Array, " dim"]) -> Float[Array, "dim dim"]:
    def column(direction):
        return jax.jvp(jax.grad(density.log_gamma), (z,), (direction,))[1]

    unit = jnp.eye(z.shape[0], dtype=z.dtype)
    return jax.lax.map(column, unit, batch_size=min(64, z.shape[0]))


class _Counted:
    """log γ and its derivatives in pieces of one size, with the calls counted."""

    def __init__(self, density: AbstractDensity, dtype: Any):
        self.density, self.dtype, self.gradients = density, dtype, 0

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.gradients += len(z)
        asked = [
            _values_and_gradients(self.density, jnp.asarray(piece, self.dtype))
            for piece in in_pieces(z, _PIECE)
        ]
        values, gradients = (
            np.concatenate([np.asarray(x) for x in part]) for part in zip(*asked, strict=True)
        )
        return values[: len(z)], gradients[: len(z)]

    def hessian(self, z: np.ndarray) -> np.ndarray:
        """Of −log γ."""
        self.gradients += 2 * len(z)
        h = np.asarray(_hessian(self.density, jnp.asarray(z, self.dtype)), np.float64)
        return -(h + h.T) / 2


def _inverse_root(hessian: np.ndarray) -> np.ndarray:
    """A lower root of the inverse, with flat and rising directions given the largest width."""
    values, vectors = np.linalg.eigh(hessian)
    return lower_root(np.maximum(values, _WIDEST**-2.0) ** -0.5, vectors)


def _polish(ask: _Counted, z: np.ndarray) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Newton steps that stay only while they climb: the place, log γ and the root there; None where
    the Hessian is no number.
    """
    (value,), (gradient,) = ask(z[None])
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


def find_modes(
    density: AbstractDensity,
    starts: Float[np.ndarray, "starts dim"],
    *,
    most: int = 20,
    known: Modes | None = None,
) -> Modes:
    """The modes that climbs from `starts` end in, and those that were `known`; at most `most` of
    them.
    """
    ask = _Counted(density, jnp.result_type(float))
    ends = climb(ask, starts)
    kept: list[tuple[np.ndarray, float, np.ndarray]] = []
    if known is not None:
        kept = list(zip(known.z, known.log_gamma, known.roots, strict=True))
    for i in np.argsort(-ends.log_gamma):
        if len(kept) == most:
            break
        if np.isfinite(ends.log_gamma[i]) and not _is_known(ends.z[i], kept):
            mode = _polish(ask, ends.z[i])
            if mode is not None and not _is_known(mode[0], kept):
                kept.append(mode)
    dim = np.shape(starts)[1]
    places, values, roots = (
        (np.array(x) for x in zip(*kept, strict=True))
        if kept
        else (np.zeros((0, dim)), np.zeros(0), np.zeros((0, dim, dim)))
    )
    return Modes(places, values, roots, ask.gradients)


def survey(
    density: AbstractDensity, starts: Float[np.ndarray, "starts dim"], known: Modes, *, most: int
) -> Modes:
    """Many short climbs, of which only those that do not come near a known mode go on: narrow modes
    far away, which few starts lead to.
    """
    ask = _Counted(density, jnp.result_type(float))
    short = climb(ask, starts, rounds=_SHORT_CLIMB)
    far = np.isfinite(short.log_gamma)
    for place, root in zip(known.z, known.roots, strict=True):
        away = scipy.linalg.solve_triangular(root, (short.z - place).T, lower=True)
        far &= np.sqrt(np.mean(away**2, axis=0)) >= _SAME
    order = np.argsort(-short.log_gamma)
    order = order[far[order]][:_GO_ON]
    if not len(order):
        return known._replace(gradients=ask.gradients)
    modes = find_modes(density, short.z[order], most=most, known=known)
    return modes._replace(gradients=modes.gradients + ask.gradients)


def _is_known(z: np.ndarray, kept: list[tuple[np.ndarray, float, np.ndarray]]) -> bool:
    for place, _, root in kept:
        away = scipy.linalg.solve_triangular(root, z - place, lower=True)
        if np.sqrt(np.mean(away**2)) < _SAME:
            return True
    return False
