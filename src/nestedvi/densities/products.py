"""Mixtures of products: coordinates that are independent around each mean, with Student-t tails
along every one of them.

They stay normalised whatever an optimiser does to their parameters. Fitting them to particles is
`fitting`'s.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.host import logsumexp
from nestedvi.randomness import generator

__all__ = ["StudentProducts"]

Vector = Float[Array, " dim"]


class StudentProducts(AbstractSampleable):
    """Σ_m π_m Π_j t_ν((z_j − μ_mj) / σ_mj) / σ_mj: independent Student-t coordinates around each
    mean, with `scales` σ and `freedom` the degrees ν; draws carry no gradient.

    Where coordinates have heavy tails each on its own, a particle has one or two of them far out
    and the others near. No density of the distance from the mean is like that.
    """

    means: Float[Array, "components dim"]
    scales: Float[Array, "components dim"]
    log_weights: Float[Array, " components"]
    freedom: int = eqx.field(static=True)

    def __init__(self, means, scales, log_weights, *, freedom: int):
        self.means, self.scales = jnp.asarray(means), jnp.asarray(scales)
        self.log_weights = jnp.asarray(log_weights, self.means.dtype)
        if freedom < 1:
            raise ValueError(
                f"The degrees of freedom are a whole number above zero; got {freedom}."
            )
        self.freedom = freedom

    def _log_parts(self, square: Any, log_scales: Any, xp: Any) -> Any:
        """log density of every component, from squared distances in its scales."""
        dim, freedom = self.means.shape[1], self.freedom
        constant = (
            scipy.special.gammaln((freedom + 1) / 2)
            - scipy.special.gammaln(freedom / 2)
            - 0.5 * np.log(freedom * np.pi)
        )
        tails = -0.5 * (freedom + 1) * xp.sum(xp.log1p(square / freedom), axis=-1)
        return tails + dim * float(constant) - xp.sum(log_scales, axis=-1)

    def log_gamma(self, z: Vector) -> Scalar:
        scales = jnp.abs(self.scales)
        parts = self._log_parts(((z - self.means) / scales) ** 2, jnp.log(scales), jnp)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.log_weights) + parts)

    def log_parts_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        """log of every component's weighted density at many particles, on the host."""
        z, means = np.asarray(z, np.float64), np.asarray(self.means, np.float64)
        scales = np.abs(np.asarray(self.scales, np.float64))
        log_weights = scipy.special.log_softmax(np.asarray(self.log_weights, np.float64))
        parts = [
            self._log_parts(((z - mean) / scale) ** 2, np.log(scale), np)
            for mean, scale in zip(means, scales, strict=True)
        ]
        return log_weights + np.stack(parts, axis=1)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        return logsumexp(self.log_parts_many(z))

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.means.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Vector:
        key_component, key_noise = jax.random.split(key)
        m = jax.random.categorical(key_component, self.log_weights)
        shape, dtype = self.means.shape[1:], self.means.dtype
        return self.means[m] + self.scales[m] * jax.random.t(key_noise, self.freedom, shape, dtype)

    @property
    def drawn_on_host(self) -> bool:
        return True

    def sample_many(self, key: Key, num: int) -> Float[np.ndarray, "num dim"]:
        rng = generator(key)
        share = scipy.special.softmax(np.asarray(self.log_weights, np.float64))
        which = rng.choice(len(share), size=num, p=share)
        eps = rng.standard_t(self.freedom, size=(num, self.means.shape[1]))
        means, scales = (np.asarray(x, np.float64)[which] for x in (self.means, self.scales))
        return (means + scales * eps).astype(self.means.dtype)
