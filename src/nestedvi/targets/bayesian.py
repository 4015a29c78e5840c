"""Targets that are posteriors: a Brownian motion with unknown scales, and a logistic regression.
Their log Z stands in `catalogue`, not here.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Scalar
from nestedvi.densities.base import AbstractDensity, check_shape
from nestedvi.targets.data import BROWNIAN_OBSERVED

__all__ = ["Brownian", "LogisticRegression", "breast_cancer"]

_LOG_2PI = float(np.log(2 * np.pi))


def _log_normal(x: Array, scale: Array | float = 1.0) -> Array:
    """log N(x; 0, scale²), elementwise."""
    return -0.5 * (x / scale) ** 2 - jnp.log(scale) - 0.5 * _LOG_2PI


class Brownian(AbstractDensity):
    """A random walk of thirty steps, seen with noise except in its middle third, both scales
    unknown.

    z = (u, v, x_1 … x_30) with σ = softplus(u) the walk's scale and τ = softplus(v) the noise's,
    each LogNormal(0, 2) a priori; x_t ~ N(x_{t-1}, σ²) from x_0 = 0, and y_t ~ N(x_t, τ²).
    """

    def log_gamma(self, z: Float[Array, "32"]) -> Scalar:
        check_shape(z, (32,), "Brownian")
        # A scale of zero would make NaN out of 0/0 where the density is merely tiny.
        scales, x = jnp.maximum(jax.nn.softplus(z[:2]), 1e-30), z[2:]
        log_scales = jnp.log(scales)
        # LogNormal in the scale, then its derivative in z, which is the logistic function.
        log_prior = _log_normal(log_scales, 2.0) - log_scales + jax.nn.log_sigmoid(z[:2])
        log_walk = _log_normal(jnp.diff(x, prepend=0.0), scales[0])
        seen = np.flatnonzero(~np.isnan(BROWNIAN_OBSERVED))
        log_seen = _log_normal(x[seen] - BROWNIAN_OBSERVED[seen], scales[1])
        return jnp.sum(log_prior) + jnp.sum(log_walk) + jnp.sum(log_seen)


class LogisticRegression(AbstractDensity):
    """Weights w ~ N(0, I), labels y_i = ±1 with probability σ(y_i w·x_i); a constant first feature
    makes the intercept.
    """

    signed: Float[Array, "rows dim"]

    def __init__(self, features: Float[np.ndarray, "rows dim"], labels: np.ndarray):
        signs = np.where(np.asarray(labels) > 0, 1.0, -1.0)
        self.signed = jnp.asarray(signs[:, None] * features, dtype=jnp.result_type(float))

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        check_shape(z, self.signed.shape[1:], "LogisticRegression")
        return jnp.sum(jax.nn.log_sigmoid(self.signed @ z)) + jnp.sum(_log_normal(z))


def breast_cancer() -> LogisticRegression:
    """The Wisconsin breast cancer data that come with scikit-learn: thirty features divided by
    their standard deviations, not centred, and an intercept."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise ImportError(
            "This target's data come with scikit-learn; pip install 'nestedvi[targets]' brings it."
        ) from error
    features, labels = load_breast_cancer(return_X_y=True)
    scaled = features / features.std(axis=0)
    return LogisticRegression(np.column_stack([np.ones(len(scaled)), scaled]), labels)
