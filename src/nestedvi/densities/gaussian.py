"""Gaussians and mixtures of round ones: initial proposals that can be learned, and test targets
with exact samples.

Whatever an optimiser does to their parameters, they stay normalised: log Z is 0 by construction,
not by how they were made.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from nestedvi._types import Key, Scalar
from nestedvi.arguments import as_floats
from nestedvi.densities.base import AbstractSampleable, check_shape

__all__ = ["DiagonalNormal", "GaussianMixture"]


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
