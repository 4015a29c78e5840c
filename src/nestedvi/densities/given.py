"""Some coordinates from one density and the others normal given those: a few that set the shape of
a posterior in many dimensions, and the many that follow them.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable, check_shape
from nestedvi.densities.low_rank import LowRankRoot
from nestedvi.randomness import generator, split_on_host

__all__ = ["NormalGiven"]

Vector = Float[Array, " dim"]


class NormalGiven(AbstractSampleable):
    """q(z_some) N(z_rest; mean + slope z_some, R Rᵀ) with a `LowRankRoot` R; draws carry no
    gradient.

    Args:
        part: the normalised density of some coordinates.
        some: which those are.
        mean: of the other coordinates where those are zero, shape (rest,).
        slope: how that moves with them, shape (rest, some).
        root: of the other coordinates' covariance given them.

    Example:
        ```python
        scale = nvi.densities.DiagonalNormal(jnp.zeros(1), 1.0)
        root = nvi.densities.LowRankRoot(jnp.ones(2), jnp.eye(2)[:, :1], jnp.array([5.0]))
        nvi.densities.NormalGiven(scale, [2], jnp.zeros(2), jnp.ones((2, 1)), root)
        ```
    """

    part: AbstractSampleable
    some: Int[Array, " some"]
    mean: Float[Array, " rest"]
    slope: Float[Array, "rest some"]
    root: LowRankRoot

    def __init__(
        self,
        part: AbstractSampleable,
        some: Any,
        mean: Any,
        slope: Any,
        root: LowRankRoot,
    ):
        self.part, self.some, self.root = part, jnp.asarray(some, jnp.int32), root
        self.mean, self.slope = jnp.asarray(mean), jnp.asarray(slope)

    @property
    def dim(self) -> int:
        return self.some.shape[0] + self.mean.shape[0]

    def _rest(self, xp: Any) -> Any:
        """Which the other coordinates are, in their order; `xp` is NumPy or JAX's version of it."""
        is_some = xp.isin(xp.arange(self.dim), xp.asarray(self.some))
        return xp.argsort(is_some, stable=True)[: self.mean.shape[0]]

    def log_gamma(self, z: Vector) -> Scalar:
        check_shape(z, (self.dim,), "This NormalGiven")
        some = z[self.some]
        eps = self.root.solve(z[self._rest(jnp)] - self.mean - self.slope @ some)
        log_normal = -0.5 * jnp.sum(eps**2) - self.root.log_det
        log_normal = log_normal - 0.5 * self.mean.shape[0] * np.log(2 * np.pi)
        return self.part.log_gamma(some) - self.part.log_Z + log_normal

    def precomputed(self) -> "NormalGiven":
        return eqx.tree_at(lambda d: d.part, self, self.part.precomputed())

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.mean.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Vector:
        key_some, key_rest = jax.random.split(key)
        some = self.part.sample(key_some)
        eps = jax.random.normal(key_rest, self.mean.shape, self.mean.dtype)
        rest = self.mean + self.slope @ some + self.root @ eps
        z = jnp.zeros(self.dim, self.mean.dtype)
        return z.at[self.some].set(some).at[self._rest(jnp)].set(rest)

    @property
    def drawn_on_host(self) -> bool:
        return self.part.drawn_on_host

    def sample_many(self, key: Key, num: int) -> Float[np.ndarray, "num dim"]:
        key_some, key_rest = split_on_host(key, 2)
        mean, slope, root = self._on_host
        some = np.asarray(self.part.sample_many(key_some, num), np.float64)
        eps = generator(key_rest).normal(size=(num, len(mean)))
        z = np.empty((num, self.dim))
        z[:, np.asarray(self.some)] = some
        z[:, self._rest(np)] = mean + some @ slope.T + root.apply(eps)
        return z.astype(self.mean.dtype)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        mean, slope, root = self._on_host
        z = np.asarray(z)
        some = z[:, np.asarray(self.some)]
        away = z[:, self._rest(np)] - mean - some.astype(np.float64) @ slope.T
        eps = root.solve(away)
        log_det = np.log(np.abs(root.scales)).sum() + np.log(np.abs(root.stretches)).sum()
        log_normal = -0.5 * np.sum(eps**2, axis=1) - log_det
        return self.part.log_prob_many(some) + log_normal - 0.5 * len(mean) * np.log(2 * np.pi)

    @property
    def _on_host(self) -> tuple[np.ndarray, np.ndarray, LowRankRoot]:
        arrays = (self.mean, self.slope, self.root)
        return jax.tree.map(lambda x: np.asarray(x, np.float64), arrays)
