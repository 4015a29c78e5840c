"""Densities made of densities: mixtures of unlike parts, and Gaussians of many widths at
once.

They stay normalised whatever an optimiser does to their parameters. Fitting them to particles is
`fitting`'s.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.randomness import generator, split_on_host

__all__ = ["Mixture", "ScaleMixture"]

Vector = Float[Array, " dim"]


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

    def sample_many(self, key: Key, num: int) -> Float[Array, "num dim"]:
        key_part, *keys = split_on_host(key, len(self.parts) + 1)
        share = scipy.special.softmax(np.asarray(self.log_weights, np.float64))
        rng = generator(key_part)
        counts = rng.multinomial(num, share)
        # Every part draws as many as could be wanted, so that each is compiled for one number.
        draws = [part.sample_many(k, num) for part, k in zip(self.parts, keys, strict=True)]
        drawn = [np.asarray(z)[:count] for z, count in zip(draws, counts, strict=True)]
        return jnp.asarray(np.concatenate(drawn)[rng.permutation(num)])

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        log_weights = scipy.special.log_softmax(np.asarray(self.log_weights, np.float64))
        log_parts = np.stack([part.log_prob_many(z) for part in self.parts], axis=1)
        return scipy.special.logsumexp(log_weights + log_parts, axis=1)

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

    def sample_many(self, key: Key, num: int) -> Float[Array, "num dim"]:
        rng, scales = generator(key), np.exp(np.asarray(self.log_scales, np.float64))
        widths = scales[rng.integers(len(scales), size=(num, 1))]
        return jnp.asarray(widths * rng.normal(size=(num, self.dim)), self.log_scales.dtype)

    def log_prob_many(self, z: Float[Array, "num dim"] | np.ndarray) -> np.ndarray:
        square = np.sum(np.asarray(z, np.float64) ** 2, axis=1, keepdims=True)
        log_scales = np.asarray(self.log_scales, np.float64)
        log_p = -0.5 * square * np.exp(-2 * log_scales) - self.dim * log_scales
        constant = np.log(len(log_scales)) + 0.5 * self.dim * np.log(2 * np.pi)
        return scipy.special.logsumexp(log_p, axis=1) - constant
