"""Mixtures: of unlike parts, of Gaussians of many widths, of correlated Gaussians, and of those
with Student-t tails along every direction.

They stay normalised whatever an optimiser does to their parameters. Fitting them to particles is
`fitting`'s.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.host import arrays_on_host, logsumexp
from nestedvi.randomness import generator, split_on_host

__all__ = [
    "CorrelatedMixture",
    "Mixture",
    "ScaleMixture",
    "StudentMixture",
    "log_radial",
    "squares_on_host",
]

Vector = Float[Array, " dim"]
_MOST_FREEDOM = 12


class Mixture(AbstractSampleable):
    """Σ_j a_j q_j(z), a mixture of normalised densities of any kinds; draws carry no gradient."""

    parts: tuple[AbstractSampleable, ...]
    log_weights: Float[Array, " parts"]

    def __init__(self, parts: Sequence[AbstractSampleable], log_weights):
        self.parts = tuple(parts)
        log_weights = jnp.asarray(log_weights)
        self.log_weights = log_weights.astype(jnp.result_type(float, log_weights))

    def precomputed(self) -> "Mixture":
        return Mixture(tuple(part.precomputed() for part in self.parts), self.log_weights)

    def log_parts(self, z: Vector) -> Float[Array, " parts"]:
        """log q_j(z) for every part."""
        return jnp.stack([part.log_gamma(z) - part.log_Z for part in self.parts])

    def log_gamma(self, z: Vector) -> Scalar:
        return jax.nn.logsumexp(jax.nn.log_softmax(self.log_weights) + self.log_parts(z))

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.log_weights.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample_many(self, key: Key, num: int) -> Float[np.ndarray, "num dim"]:
        key_part, *keys = split_on_host(key, len(self.parts) + 1)
        share = scipy.special.softmax(np.asarray(self.log_weights, np.float64))
        rng = generator(key_part)
        counts = rng.multinomial(num, share)
        # A part that is compiled for a number draws as many as could be wanted.
        drawn = [
            np.asarray(part.sample_many(k, int(count) if part.drawn_on_host else num))[:count]
            for part, k, count in zip(self.parts, keys, counts, strict=True)
        ]
        return np.concatenate(drawn)[rng.permutation(num)]

    @property
    def drawn_on_host(self) -> bool:
        return all(part.drawn_on_host for part in self.parts)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        log_weights = scipy.special.log_softmax(np.asarray(self.log_weights, np.float64))
        log_parts = [
            log_weight + part.log_prob_many(z)
            for part, log_weight in zip(self.parts, log_weights, strict=True)
            if log_weight > -np.inf
        ]
        return logsumexp(np.stack(log_parts), axis=0)

    def sample(self, key: Key) -> Vector:
        key_part, *keys = jax.random.split(key, len(self.parts) + 1)
        draws = jnp.stack([part.sample(k) for part, k in zip(self.parts, keys, strict=True)])
        return draws[jax.random.categorical(key_part, self.log_weights)]


class ScaleMixture(AbstractSampleable):
    """An equal mixture of N(0, s² I) over widths s: heavy enough for a target of unknown size, and
    the same in any rotation.
    """

    log_scales: Float[Array, " widths"]
    dim: int = eqx.field(static=True)

    def __init__(self, dim: int, scales: Sequence[float] = (0.3, 1.0, 3.0, 10.0, 30.0)):
        self.log_scales, self.dim = jnp.log(jnp.asarray(scales)), dim

    def log_gamma(self, z: Vector) -> Scalar:
        log_p = -0.5 * jnp.sum(z**2) * jnp.exp(-2 * self.log_scales) - self.dim * self.log_scales
        return (
            jax.nn.logsumexp(log_p)
            - np.log(len(self.log_scales))
            - 0.5 * self.dim * np.log(2 * np.pi)
        )

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.log_scales.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Vector:
        key_width, key_noise = jax.random.split(key)
        width = jnp.exp(self.log_scales[jax.random.randint(key_width, (), 0, len(self.log_scales))])
        return width * jax.random.normal(key_noise, (self.dim,), self.log_scales.dtype)

    @property
    def drawn_on_host(self) -> bool:
        return True

    def sample_many(self, key: Key, num: int) -> Float[np.ndarray, "num dim"]:
        rng, scales = generator(key), np.exp(np.asarray(self.log_scales, np.float64))
        widths = scales[rng.integers(len(scales), size=(num, 1))]
        return (widths * rng.normal(size=(num, self.dim))).astype(self.log_scales.dtype)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        square = np.sum(np.asarray(z, np.float64) ** 2, axis=1, keepdims=True)
        log_scales = np.asarray(self.log_scales, np.float64)
        log_p = -0.5 * square * np.exp(-2 * log_scales) - self.dim * log_scales
        constant = np.log(len(log_scales)) + 0.5 * self.dim * np.log(2 * np.pi)
        return logsumexp(log_p) - constant


def inverse_roots(
    roots: Float[Array, "components dim dim"],
) -> Float[Array, "components dim dim"]:
    """Of lower triangular roots, one a component."""
    unit = jnp.broadcast_to(jnp.eye(roots.shape[-1], dtype=roots.dtype), roots.shape)
    return jax.scipy.linalg.solve_triangular(roots, unit, lower=True)


def components_on_host(
    rng: np.random.Generator,
    eps: np.ndarray,
    means: Float[Array, "components dim"],
    roots: Float[Array, "components dim dim"],
    log_weights: Float[Array, " components"],
) -> Float[np.ndarray, "num dim"]:
    """μ_m + L_m ε for each row ε, with a component m drawn by its weight; with nothing to
    compile.
    """
    centres, lower = (np.asarray(x, np.float64) for x in (means, np.tril(roots)))
    share = scipy.special.softmax(np.asarray(log_weights, np.float64))
    which, z = rng.choice(len(share), size=len(eps), p=share), np.empty_like(eps)
    for m in np.unique(which):
        mine = which == m
        z[mine] = centres[m] + eps[mine] @ lower[m].T
    return z.astype(means.dtype)


def squares_on_host(
    z: Float[Array, "num dim"] | np.ndarray,
    means: Float[Array, "components dim"] | np.ndarray,
    roots: Float[Array, "components dim dim"] | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """|L_m⁻¹ (z − μ_m)|² for every particle and component, and log |det L_m|, in NumPy."""
    z, means, roots = (np.asarray(x, np.float64) for x in (z, means, roots))
    squares = np.empty((len(z), len(means)))
    for m, (mean, root) in enumerate(zip(means, roots, strict=True)):
        # Of one matrix a product with its inverse is far faster than many triangular solutions.
        inverse = scipy.linalg.solve_triangular(root, np.eye(len(root)), lower=True)
        away = (z - mean) @ inverse.T
        squares[:, m] = np.einsum("ij,ij->i", away, away)
    return squares, np.log(np.abs(np.diagonal(roots, axis1=1, axis2=2))).sum(axis=1)


class CorrelatedMixture(AbstractSampleable):
    """Σ_m π_m N(z; μ_m, L_m L_mᵀ), L_m the lower triangle of `roots`; draws carry no gradient."""

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

    @property
    def drawn_on_host(self) -> bool:
        return True

    def sample_many(self, key: Key, num: int) -> Float[np.ndarray, "num dim"]:
        rng = generator(key)
        eps = rng.normal(size=(num, self.means.shape[1]))
        return components_on_host(rng, eps, self.means, self.roots, self.log_weights)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        squares, log_det = squares_on_host(z, self.means, self.roots)
        log_weights = scipy.special.log_softmax(np.asarray(self.log_weights, np.float64))
        log_norm = 0.5 * self.means.shape[1] * np.log(2 * np.pi)
        return logsumexp(log_weights - log_det - 0.5 * squares) - log_norm


def log_radial(square: Any, dim: int, tails_logit: Any, freedom: Any, xp: Any) -> tuple[Any, Any]:
    """log of the Gaussian and of the Student part of the density of L⁻¹ (z − μ), where its squared
    length is `square`; `xp` is NumPy or JAX's version of it.
    """
    gammaln = scipy.special.gammaln if xp is np else jax.scipy.special.gammaln
    freedom = xp.asarray(freedom, square.dtype)
    constant = gammaln((freedom + dim) / 2) - gammaln(freedom / 2)
    constant = constant - 0.5 * dim * xp.log(freedom * np.pi) - xp.logaddexp(0.0, -tails_logit)
    normal = -0.5 * square - 0.5 * dim * np.log(2 * np.pi) - xp.logaddexp(0.0, tails_logit)
    return normal, -0.5 * (freedom + dim) * xp.log1p(square / freedom) + constant


class StudentMixture(AbstractSampleable):
    """Σ_m π_m [(1 − s) N(z; μ_m, L_m L_mᵀ) + s t_ν(z; μ_m, L_m L_mᵀ)], with L_m the lower triangle
    of `roots`, `tails` the share s and `freedom` the degrees ν; draws carry no gradient.

    The Gaussians keep it efficient where a posterior is nearly Gaussian; the tails keep weights
    bounded where it is not. The share is held as its logit, which any number may be, the degrees as
    a whole number, which no optimiser moves; one compiled program serves all of them.
    """

    means: Float[Array, "components dim"]
    roots: Float[Array, "components dim dim"]
    log_weights: Float[Array, " components"]
    inverses: Float[Array, "components dim dim"] | None
    tails_logit: Scalar
    freedom: Int[Array, ""]

    def __init__(self, means, roots, log_weights, *, tails: float = 0.3, freedom: int = 5):
        self.means, self.roots, self.inverses = jnp.asarray(means), jnp.asarray(roots), None
        self.log_weights = jnp.asarray(log_weights, self.means.dtype)
        if not 0 < tails < 1 or freedom not in range(1, _MOST_FREEDOM + 1):
            raise ValueError(
                "Tails take a share between 0 and 1 and a whole number of degrees, at most"
                f" {_MOST_FREEDOM}; got {tails} and {freedom}."
            )
        with arrays_on_host():
            self.tails_logit = jnp.asarray(scipy.special.logit(tails), self.means.dtype)
            self.freedom = jnp.asarray(freedom, jnp.int32)

    @property
    def tails(self) -> float:
        """The share s, on the host."""
        return float(scipy.special.expit(np.float64(self.tails_logit)))

    def precomputed(self) -> "StudentMixture":
        return eqx.tree_at(
            lambda d: d.inverses, self, inverse_roots(self.roots), is_leaf=lambda x: x is None
        )

    def log_gamma(self, z: Vector) -> Scalar:
        inverses = inverse_roots(self.roots) if self.inverses is None else self.inverses
        eps = jnp.einsum("mij,mj->mi", inverses, z - self.means)
        log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.roots, axis1=1, axis2=2))), axis=1)
        radial = jnp.logaddexp(
            *log_radial(jnp.sum(eps**2, axis=1), z.shape[0], self.tails_logit, self.freedom, jnp)
        )
        return jax.nn.logsumexp(jax.nn.log_softmax(self.log_weights) - log_det + radial)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        squares, log_det = squares_on_host(z, self.means, self.roots)
        log_weights = scipy.special.log_softmax(np.asarray(self.log_weights, np.float64))
        logit, freedom = (np.asarray(x, np.float64) for x in (self.tails_logit, self.freedom))
        radial = np.logaddexp(*log_radial(squares, self.means.shape[1], logit, freedom, np))
        return logsumexp(log_weights - log_det + radial)

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.means.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Vector:
        key_component, key_noise, key_tail, key_width = jax.random.split(key, 4)
        m = jax.random.categorical(key_component, self.log_weights)
        eps = jax.random.normal(key_noise, self.means.shape[1:], self.means.dtype)
        # A t variable is a Gaussian over the root of a mean of squares, one a degree of freedom.
        counts = jnp.arange(_MOST_FREEDOM) < self.freedom
        squares = jax.random.normal(key_width, counts.shape, eps.dtype) ** 2
        mean_square = jnp.sum(jnp.where(counts, squares, 0.0)) / self.freedom
        is_tail = jax.random.uniform(key_tail) < jax.nn.sigmoid(self.tails_logit)
        width = jnp.where(is_tail, mean_square**-0.5, 1.0)
        return self.means[m] + jnp.tril(self.roots[m]) @ (width * eps)

    @property
    def drawn_on_host(self) -> bool:
        return True

    def sample_many(self, key: Key, num: int) -> Float[np.ndarray, "num dim"]:
        rng = generator(key)
        freedom = float(self.freedom)
        tail = rng.uniform(size=num) < self.tails
        squares = rng.chisquare(freedom, size=num) / freedom
        width = np.where(tail, squares**-0.5, 1.0)[:, None]
        eps = rng.normal(size=(num, self.means.shape[1])) * width
        return components_on_host(rng, eps, self.means, self.roots, self.log_weights)
