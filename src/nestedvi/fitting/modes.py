"""Modes of a density and the shape of the density around each: many optimisations, then Hessians.

The optimiser is SciPy's, on the host; the density is asked for values, gradients and products with
its Hessian, each compiled once. Nothing here draws a sample.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from nestedvi.densities.base import AbstractDensity

__all__ = ["Modes", "find_modes"]

# A direction in which the density is flat is taken to be this wide, in the units of the search.
_WIDEST = 30.0
# Ends of two optimisations are one mode if a Gaussian of either's shape would not tell them apart.
_SAME = 2.0
_NEWTON_STEPS = 8


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
def _value_and_gradient(density: AbstractDensity, z: Float[Array, " dim"]) -> Any:
    return jax.value_and_grad(density.log_gamma)(z)


@eqx.filter_jit
def _hessian(density: AbstractDensity, z: Float[Array, " dim"]) -> Float[Array, "dim dim"]:
    def column(direction):
        return jax.jvp(jax.grad(density.log_gamma), (z,), (direction,))[1]

    unit = jnp.eye(z.shape[0], dtype=z.dtype)
    return jax.lax.map(column, unit, batch_size=min(64, z.shape[0]))


class _Counted:
    """−log γ and its gradient in double precision, as SciPy wants them, with the calls counted."""

    def __init__(self, density: AbstractDensity, dtype: Any):
        self.density, self.dtype, self.gradients = density, dtype, 0

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        self.gradients += 1
        value, gradient = _value_and_gradient(self.density, jnp.asarray(z, self.dtype))
        gradient = np.asarray(gradient, np.float64)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            # Beyond the support: a line search turns back from it.
            return 1e30, np.zeros_like(gradient)
        return -float(value), -gradient

    def hessian(self, z: np.ndarray) -> np.ndarray:
        self.gradients += 2 * len(z)
        h = np.asarray(_hessian(self.density, jnp.asarray(z, self.dtype)), np.float64)
        return -(h + h.T) / 2


def _inverse_root(hessian: np.ndarray) -> np.ndarray:
    """A lower root of the inverse, with flat and rising directions given the largest width."""
    values, vectors = np.linalg.eigh(hessian)
    covariance = (vectors / np.maximum(values, _WIDEST**-2.0)) @ vectors.T
    return np.linalg.cholesky((covariance + covariance.T) / 2)


def _polish(ask: _Counted, z: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Newton steps that stay only while they climb: the place, −log γ and the root there."""
    value, gradient = ask(z)
    root = _inverse_root(ask.hessian(z))
    for _ in range(_NEWTON_STEPS):
        step = -root @ (root.T @ gradient)
        if step @ (-gradient) < 1e-4:
            break
        for size in (1.0, 0.3, 0.1):
            new, new_gradient = ask(z + size * step)
            if new < value:
                break
        else:
            break
        z, value, gradient = z + size * step, new, new_gradient
        root = _inverse_root(ask.hessian(z))
    return z, value, root


def find_modes(
    density: AbstractDensity,
    starts: Float[np.ndarray, "starts dim"],
    *,
    most: int = 20,
    known: Modes | None = None,
) -> Modes:
    """The modes that optimisations from `starts` end in, and those that were `known`; at most
    `most` of them.
    """
    ask = _Counted(density, jnp.result_type(float))
    ends = []
    for start in np.asarray(starts, np.float64):
        # An attribute of scipy imports itself when it is first used: it is a sixth of a second.
        result = scipy.optimize.minimize(
            ask, start, jac=True, method="L-BFGS-B", options={"maxiter": 500, "maxcor": 20}
        )
        if result.fun < 1e29 and np.isfinite(result.x).all():
            ends.append((float(result.fun), result.x))
    kept: list[tuple[np.ndarray, float, np.ndarray]] = []
    if known is not None:
        kept = list(zip(known.z, -known.log_gamma, known.roots, strict=True))
    for _, z in sorted(ends, key=lambda end: end[0]):
        if len(kept) == most:
            break
        if not _is_known(z, kept):
            mode = _polish(ask, z)
            if not _is_known(mode[0], kept):
                kept.append(mode)
    dim = np.shape(starts)[1]
    places, values, roots = (
        (np.array(x) for x in zip(*kept, strict=True))
        if kept
        else (np.zeros((0, dim)), np.zeros(0), np.zeros((0, dim, dim)))
    )
    return Modes(places, -values, roots, ask.gradients)


def _is_known(z: np.ndarray, kept: list[tuple[np.ndarray, float, np.ndarray]]) -> bool:
    for place, _, root in kept:
        away = np.linalg.solve(root, z - place)
        if np.sqrt(np.mean(away**2)) < _SAME:
            return True
    return False
