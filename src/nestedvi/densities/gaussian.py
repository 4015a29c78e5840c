"""Gaussians and mixtures of them: initial proposals that can be learned, and test targets with
exact samples.

Whatever an optimiser does to their parameters, they stay normalised: log Z is 0 by construction,
not by how they were made.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Array, ArrayLike, Float

from nestedvi._types import Key, Scalar
from nestedvi.arguments import as_floats
from nestedvi.densities.base import AbstractSampleable, check_shape
from nestedvi.randomness import generator

__all__ = [
    "CorrelatedMixture",
    "DiagonalNormal",
    "GaussianMixture",
    "components_on_host",
    "inverse_roots",
    "squares_on_host",
]


class DiagonalNormal(AbstractSampleable):
    """N(loc, diag(exp(log_scale))²) on R^dim, with parameters that can be learned.

    Args:
        loc: the mean, shape (dim,).
        scale: standard deviations, shape (dim,) or one for all.

    Example:
        ```python
        density = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
        z = density.sample(jax.random.key(0))
        density.log_gamma(z) - density.log_Z
        ```
    """

    loc: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]

    def __init__(self, loc: ArrayLike, scale: ArrayLike):
        loc = jnp.atleast_1d(as_floats("The loc of a normal", loc))
        scale = as_floats("The scale of a normal", scale)
        # Under vmap (a stack of densities) the values are not known yet, and the check cannot be
        # made.
        if not isinstance(scale, jax.core.Tracer) and not bool(jnp.all(scale > 0)):
            raise ValueError(f"The scale of a normal must be positive; got {np.asarray(scale)}.")
        self.loc, self.log_scale = loc, jnp.broadcast_to(jnp.log(scale), loc.shape)

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        check_shape(z, self.loc.shape, "This DiagonalNormal")
        eps = (z - self.loc) * jnp.exp(-self.log_scale)
        return jnp.sum(-0.5 * eps**2 - self.log_scale - 0.5 * np.log(2 * np.pi))

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.loc.dtype)

    @property
    def reparameterised(self) -> bool:
        return True

    def sample(self, key: Key) -> Float[Array, " dim"]:
        return self.loc + jnp.exp(self.log_scale) * jax.random.normal(
            key, self.loc.shape, self.loc.dtype
        )


class GaussianMixture(AbstractSampleable):
    """Σ_m π_m N(z; μ_m, variance·I), normalised; draws carry no gradient (the component is
    discrete).
    """

    means: Float[Array, "components dim"]
    variance: float = eqx.field(static=True)
    log_weights: Float[Array, " components"]

    def __init__(self, means, variance: float, weights=None):
        self.means = jnp.asarray(means, dtype=jnp.result_type(float))
        if self.means.ndim != 2:
            raise ValueError(
                f"Mixture means must have shape (components, dim); got {self.means.shape}."
            )
        self.variance = float(variance)
        raw = jnp.ones(self.means.shape[0]) if weights is None else jnp.asarray(weights)
        self.log_weights = jnp.log(raw / jnp.sum(raw)).astype(self.means.dtype)

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        dim = self.means.shape[1]
        check_shape(z, (dim,), "This GaussianMixture")
        square = jnp.sum((z - self.means) ** 2, axis=1) / self.variance
        log_norm = 0.5 * dim * np.log(2 * np.pi * self.variance)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.log_weights) - 0.5 * square) - log_norm

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.means.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Float[Array, " dim"]:
        key_component, key_noise = jax.random.split(key)
        mean = self.means[jax.random.categorical(key_component, self.log_weights)]
        return mean + np.sqrt(self.variance) * jax.random.normal(key_noise, mean.shape, mean.dtype)


def inverse_roots(
    roots: Float[Array, "components dim dim"],
) -> Float[Array, "components dim dim"]:
    """Inverses of lower triangular roots, one a component."""
    unit = jnp.broadcast_to(jnp.eye(roots.shape[-1], dtype=roots.dtype), roots.shape)
    return jax.scipy.linalg.solve_triangular(roots, unit, lower=True)


def components_on_host(
    rng: np.random.Generator,
    eps: np.ndarray,
    means: Float[Array, "components dim"],
    roots: Float[Array, "components dim dim"],
    log_weights: Float[Array, " components"],
) -> Float[Array, "num dim"]:
    """μ_m + L_m ε for each row ε, with a component m drawn by its weight; with nothing to
    compile.
    """
    centres, lower = (np.asarray(x, np.float64) for x in (means, np.tril(roots)))
    share = scipy.special.softmax(np.asarray(log_weights, np.float64))
    which, z = rng.choice(len(share), size=len(eps), p=share), np.empty_like(eps)
    for m in np.unique(which):
        mine = which == m
        z[mine] = centres[m] + eps[mine] @ lower[m].T
    return jnp.asarray(z, means.dtype)


def squares_on_host(
    z: Float[Array, "num dim"] | np.ndarray,
    means: Float[Array, "components dim"] | np.ndarray,
    roots: Float[Array, "components dim dim"] | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """|L_m⁻¹ (z − μ_m)|² for every particle and component, and log |det L_m|, in double precision
    and with nothing to compile.
    """
    z, means, roots = (np.asarray(x, np.float64) for x in (z, means, roots))
    squares = np.empty((len(z), len(means)))
    for m, (mean, root) in enumerate(zip(means, roots, strict=True)):
        # Of one matrix a product with its inverse is far faster than many triangular solutions.
        inverse = scipy.linalg.solve_triangular(root, np.eye(len(root)), lower=True)
        away = (z - mean) @ inverse.T
        squares[:, m] = np.einsum("ij,ij->i", away, away)
    return squares, np.log(np.abs(np.diagonal(roots, axis1=1, axis2=2))).sum(axis=1)


class CorrelatedMixture(AbstractSampleable):
    """Σ_m π_m N(z; μ_m, L_m L_mᵀ) with L_m the lower triangle of `roots`, normalised; draws carry
    no gradient.
    """

    means: Float[Array, "components dim"]
    roots: Float[Array, "components dim dim"]
    log_weights: Float[Array, " components"]
    inverses: Float[Array, "components dim dim"] | None

    def __init__(self, means, roots, log_weights, inverses=None):
        self.means, self.roots, self.inverses = jnp.asarray(means), jnp.asarray(roots), inverses
        self.log_weights = jnp.asarray(log_weights, self.means.dtype)

    def precomputed(self) -> "CorrelatedMixture":
        return CorrelatedMixture(
            self.means, self.roots, self.log_weights, inverse_roots(self.roots)
        )

    def log_parts(self, z: Float[Array, " dim"]) -> Float[Array, " components"]:
        """log π_m N(z; μ_m, L_m L_mᵀ) of every component."""
        inverses = inverse_roots(self.roots) if self.inverses is None else self.inverses
        eps = jnp.einsum("mij,mj->mi", inverses, z - self.means)
        log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.roots, axis1=1, axis2=2))), axis=1)
        log_weights = jax.nn.log_softmax(self.log_weights)
        return (
            log_weights
            - 0.5 * jnp.sum(eps**2, axis=1)
            - log_det
            - 0.5 * z.shape[0] * np.log(2 * np.pi)
        )

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        return jax.nn.logsumexp(self.log_parts(z))

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.means.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Float[Array, " dim"]:
        key_component, key_noise = jax.random.split(key)
        m = jax.random.categorical(key_component, self.log_weights)
        return self.means[m] + jnp.tril(self.roots[m]) @ jax.random.normal(
            key_noise, self.means.shape[1:], self.means.dtype
        )

    def sample_many(self, key: Key, num: int) -> Float[Array, "num dim"]:
        rng = generator(key)
        eps = rng.normal(size=(num, self.means.shape[1]))
        return components_on_host(rng, eps, self.means, self.roots, self.log_weights)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        squares, log_det = squares_on_host(z, self.means, self.roots)
        log_weights = scipy.special.log_softmax(np.asarray(self.log_weights, np.float64))
        log_norm = 0.5 * self.means.shape[1] * np.log(2 * np.pi)
        return scipy.special.logsumexp(log_weights - log_det - 0.5 * squares, axis=1) - log_norm
