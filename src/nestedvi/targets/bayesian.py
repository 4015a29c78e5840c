"""Targets that are posteriors: a Brownian motion with unknown scales, and logistic regressions.
Their log Z stands in `catalogue`, not here.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from nestedvi._types import Scalar
from nestedvi.densities.base import AbstractDensity, check_shape
from nestedvi.targets.data import BROWNIAN_OBSERVED, SEEDS

__all__ = ["Brownian", "LogisticRegression", "Seeds", "breast_cancer", "log_normal"]

_LOG_2PI = float(np.log(2 * np.pi))


def log_normal(x: Array, scale: Array | float = 1.0) -> Array:
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
        log_prior = log_normal(log_scales, 2.0) - log_scales + jax.nn.log_sigmoid(z[:2])
        log_walk = log_normal(jnp.diff(x, prepend=0.0), scales[0])
        seen = np.flatnonzero(~np.isnan(BROWNIAN_OBSERVED))
        log_seen = log_normal(x[seen] - BROWNIAN_OBSERVED[seen], scales[1])
        return jnp.sum(log_prior) + jnp.sum(log_walk) + jnp.sum(log_seen)


class LogisticRegression(AbstractDensity):
    """Weights w ~ N(0, scale² I), labels y_i = ±1 with probability σ(y_i w·x_i); a constant first
    feature makes the intercept.
    """

    signed: Float[Array, "rows dim"]
    scale: float

    def __init__(
        self, features: Float[np.ndarray, "rows dim"], labels: np.ndarray, scale: float = 1.0
    ):
        self.scale = scale
        signs = np.where(np.asarray(labels) > 0, 1.0, -1.0)
        self.signed = jnp.asarray(signs[:, None] * features, dtype=jnp.result_type(float))

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        check_shape(z, self.signed.shape[1:], "LogisticRegression")
        log_seen = jnp.sum(jax.nn.log_sigmoid(self.signed @ z))
        return log_seen + jnp.sum(log_normal(z, self.scale))


class Seeds(AbstractDensity):
    """Germination of seeds on 21 plates: a logistic regression with a random effect for each plate.

    z = (log τ, a_0, a_1, a_2, a_12, b_1 … b_21) with τ ~ Gamma(0.01, 0.01), a ~ N(0, 10²) and
    b_i ~ N(0, 1/τ); of n_i seeds r_i germinate, with the log odds
    a_0 + a_1 x_1 + a_2 x_2 + a_12 x_1 x_2 + b_i.
    """

    def log_gamma(self, z: Float[Array, "26"]) -> Scalar:
        check_shape(z, (26,), "Seeds")
        log_tau, a, b = z[0], z[1:5], z[5:]
        # Gamma(0.01, 0.01) in τ, then its derivative in log τ.
        constant = 0.01 * np.log(0.01) - math.lgamma(0.01)
        log_prior = constant + 0.01 * log_tau - 0.01 * jnp.exp(log_tau)
        log_effects = -0.5 * b**2 * jnp.exp(log_tau) + 0.5 * log_tau - 0.5 * _LOG_2PI
        r, n, x1, x2 = SEEDS.T
        logits = a[0] + a[1] * x1 + a[2] * x2 + a[3] * x1 * x2 + b
        log_seen = r * logits - n * jax.nn.softplus(logits) + np.log(special.binom(n, r))
        log_prior += jnp.sum(log_normal(a, 10.0)) + jnp.sum(log_effects)
        return log_prior + jnp.sum(log_seen)


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
