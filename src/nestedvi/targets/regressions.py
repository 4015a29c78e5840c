"""Logistic regressions on three public tables, in the scalings and with the priors that papers use.
An evidence belongs to both, so each function and class here says which they are.

Features are always those of the table after a constant first one, the intercept, whose weight has
the same prior as the others.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Scalar
from nestedvi.densities.base import AbstractDensity, check_shape
from nestedvi.targets.bayesian import LogisticRegression, log_normal
from nestedvi.targets.data import load_table

__all__ = [
    "HierarchicalCredit",
    "SparseCredit",
    "german_credit",
    "german_credit_raw",
    "german_credit_wide",
    "ionosphere",
    "sonar",
]

# log of the constant of Gamma(1/2, 1/2).
_LOG_HALF_GAMMA = float(0.5 * np.log(0.5) - 0.5 * np.log(np.pi))


def german_credit() -> LogisticRegression:
    """German credit, 25 weights ~ N(0, I): each of the 24 numeric features with mean 0 and standard
    deviation 1. The label is a good risk.
    """
    features, good = _credit()
    return LogisticRegression(_with_intercept(_standardised(features)), good)


def german_credit_wide() -> LogisticRegression:
    """German credit, 25 weights ~ N(0, 10² I): features divided by their standard deviations and
    not centred.
    """
    features, good = _credit()
    return LogisticRegression(_with_intercept(features / features.std(axis=0)), good, 10.0)


def german_credit_raw() -> LogisticRegression:
    """German credit, 25 weights ~ N(0, I): features as they are in the table."""
    features, good = _credit()
    return LogisticRegression(_with_intercept(features), good)


def sonar() -> LogisticRegression:
    """Sonar echoes of mines and rocks, 61 weights ~ N(0, I): features with mean 0 and standard
    deviation 1. The label is a mine.
    """
    table = load_table("sonar")
    return LogisticRegression(_with_intercept(_standardised(table[:, :-1])), table[:, -1])


def ionosphere() -> LogisticRegression:
    """Radar echoes of the ionosphere, 35 weights ~ N(0, I): features with mean 0 and standard
    deviation 1. The second feature is zero in every row and stays so; its weight has its prior. The
    label is a good echo.
    """
    table = load_table("ionosphere")
    return LogisticRegression(_with_intercept(_standardised(table[:, :-1])), table[:, -1])


class HierarchicalCredit(AbstractDensity):
    """German credit with an unknown scale of the weights: z = (log σ², w_0 … w_24) with
    σ² ~ Exponential(0.01) and w ~ N(0, σ² I), features with mean 0 and standard deviation 1.
    """

    signed: Float[Array, "rows 25"]

    def __init__(self) -> None:
        self.signed = german_credit().signed

    def log_gamma(self, z: Float[Array, "26"]) -> Scalar:
        check_shape(z, (26,), "HierarchicalCredit")
        log_variance, w = z[0], z[1:]
        # Exponential in σ², then its derivative in log σ².
        log_prior = np.log(0.01) + log_variance - 0.01 * jnp.exp(log_variance)
        log_weights = log_normal(w, jnp.exp(0.5 * log_variance))
        log_seen = jax.nn.log_sigmoid(self.signed @ w)
        return log_prior + jnp.sum(log_weights) + jnp.sum(log_seen)


class SparseCredit(AbstractDensity):
    """German credit with weights of which many may be near zero: z = (log g, log s_1 … log s_25,
    b_1 … b_25) with g, s_i ~ Gamma(1/2, 1/2), b ~ N(0, I) and weights w_i = g s_i b_i, features
    with mean 0 and standard deviation 1.

    The priors are those of inference_gym's GermanCreditNumericSparseLogisticRegression.
    """

    signed: Float[Array, "rows 25"]

    def __init__(self) -> None:
        self.signed = german_credit().signed

    def log_gamma(self, z: Float[Array, "51"]) -> Scalar:
        check_shape(z, (51,), "SparseCredit")
        log_scales, b = z[:26], z[26:]
        # Gamma(1/2, 1/2) in a scale, then its derivative in the scale's logarithm.
        log_prior = _LOG_HALF_GAMMA + 0.5 * log_scales - 0.5 * jnp.exp(log_scales)
        w = jnp.exp(log_scales[0] + log_scales[1:]) * b
        log_seen = jax.nn.log_sigmoid(self.signed @ w)
        return jnp.sum(log_prior) + jnp.sum(log_normal(b)) + jnp.sum(log_seen)


def _credit() -> tuple[np.ndarray, np.ndarray]:
    """The 24 features, and whether the risk is good, which the table calls 1 and not 2."""
    table = load_table("german-credit")
    return table[:, :-1], table[:, -1] == 1


def _standardised(features: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1; a feature that is constant becomes zero."""
    spread = features.std(axis=0)
    return (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def _with_intercept(features: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(features)), features])
