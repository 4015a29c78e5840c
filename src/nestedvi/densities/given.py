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
from nestedvi.densities.low_rank import LowRankNormal
from nestedvi.randomness import split_on_host

__all__ = ["NormalGiven"]

Vector = Float[Array, " dim"]


class NormalGiven(AbstractSampleable):
    """Some coordinates from one density, and the others a linear function of those plus a draw from
    a `LowRankNormal`; draws carry no gradient.

    Args:
        part: the normalised density of some coordinates.
        some: which those are.
        rest: the density of the others where those are zero, in their order.
        slope: how the others' mean moves with them, shape (rest, some).

    Example:
        ```python
        scale = nvi.densities.DiagonalNormal(jnp.zeros(1), 1.0)
        root = nvi.densities.LowRankRoot(jnp.ones(2), jnp.eye(2)[:, :1], jnp.array([5.0]))
        rest = nvi.densities.LowRankNormal(jnp.zeros(2), root)
        nvi.densities.NormalGiven(scale, [2], rest, jnp.ones((2, 1)))
        ```
    """

    part: AbstractSampleable
    some: Int[Array, " some"]
    others: Int[Array, " rest"]
    rest: LowRankNormal
    slope: Float[Array, "rest some"]

    def __init__(self, part: AbstractSampleable, some: Any, rest: LowRankNormal, slope: Any):
        self.part, self.rest = part, rest
        slope = jnp.asarray(slope)
        self.slope = slope.astype(jnp.result_type(float, slope))
        places = np.asarray(some)
        good = places.ndim == 1 and len(set(places.tolist())) == len(places)
        if not good or self.slope.shape != (rest.mean.shape[0], len(places)):
            raise ValueError(
                "A NormalGiven takes different places of some coordinates and a slope of shape"
                f" (rest, some) = ({rest.mean.shape[0]}, {places.size}); got places {some} and a"
                f" slope of shape {self.slope.shape}."
            )
        if not all(0 <= place < self.slope.shape[0] + len(places) for place in places):
            raise ValueError(
                f"Of {self.slope.shape[0] + len(places)} coordinates places are 0 to"
                f" {self.slope.shape[0] + len(places) - 1}; got {some}."
            )
        self.some = jnp.asarray(places, jnp.int32)
        self.others = jnp.asarray(np.setdiff1d(np.arange(self.dim), places), jnp.int32)

    @property
    def dim(self) -> int:
        return self.some.shape[0] + self.slope.shape[0]

    def log_gamma(self, z: Vector) -> Scalar:
        check_shape(z, (self.dim,), "This NormalGiven")
        some = z[self.some]
        away = z[self.others] - self.slope @ some
        return self.part.log_gamma(some) - self.part.log_Z + self.rest.log_gamma(away)

    def precomputed(self) -> "NormalGiven":
        return eqx.tree_at(lambda d: d.part, self, self.part.precomputed())

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.slope.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Vector:
        key_some, key_rest = jax.random.split(key)
        some = self.part.sample(key_some)
        others = self.slope @ some + self.rest.sample(key_rest)
        z = jnp.zeros(self.dim, self.slope.dtype)
        return z.at[self.some].set(some).at[self.others].set(others)

    @property
    def drawn_on_host(self) -> bool:
        return self.part.drawn_on_host

    def sample_many(self, key: Key, num: int) -> Float[np.ndarray, "num dim"]:
        key_some, key_rest = split_on_host(key, 2)
        some = np.asarray(self.part.sample_many(key_some, num), np.float64)
        z = np.empty((num, self.dim), self.slope.dtype)
        z[:, np.asarray(self.some)] = some
        z[:, np.asarray(self.others)] = self._moved(some) + self.rest.sample_many(key_rest, num)
        return z

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        z = np.asarray(z)
        some = z[:, np.asarray(self.some)]
        away = z[:, np.asarray(self.others)] - self._moved(some)
        return self.part.log_prob_many(some) + self.rest.log_prob_many(away)

    def _moved(self, some: np.ndarray) -> np.ndarray:
        return some.astype(np.float64) @ np.asarray(self.slope, np.float64).T
