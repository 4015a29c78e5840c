"""Stochastic volatility of real returns: the pound in dollars, day by day from October 1981."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from nestedvi._types import Scalar
from nestedvi.densities.base import AbstractDensity, check_shape
from nestedvi.targets.bayesian import log_normal
from nestedvi.targets.data import load_table

__all__ = ["StochasticVolatility", "pound_returns"]


def pound_returns() -> Float[np.ndarray, "936"]:
    """100 (log r_t − log r_{t−1}) less the mean, for the rate r in dollars a pound."""
    returns = 100 * np.diff(np.log(load_table("pound-dollar")[:, 0]))
    return returns - returns.mean()


class StochasticVolatility(AbstractDensity):
    """Returns y_t ~ N(0, exp(h_t)) whose log variance is an autoregression:
    h_1 ~ N(μ, σ²/(1 − φ²)) and h_{t+1} ~ N(μ + φ (h_t − μ), σ²).

    z = (μ, logit((1 + φ)/2), log σ², e_1 … e_T): e are the standard normal innovations that make h,
    so the coordinates are whitened. μ ~ N(0, 10²), (1 + φ)/2 ~ Beta(20, 1.5) and
    σ² ~ InverseGamma(2.5, 0.025), as in Kim, Shephard and Chib (1998) but for μ.

    Args:
        num_returns: T, how many of the 936 returns, from the first.
    """

    returns: Float[Array, " days"]

    def __init__(self, num_returns: int = 100) -> None:
        returns = pound_returns()
        if not 1 <= num_returns <= len(returns):
            raise ValueError(f"There are {len(returns)} returns; got num_returns={num_returns}.")
        self.returns = jnp.asarray(returns[:num_returns], dtype=jnp.result_type(float))

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        check_shape(z, (3 + len(self.returns),), "StochasticVolatility")
        mu, logit, log_variance, noise = z[0], z[1], z[2], z[3:]
        log_prior = log_normal(mu, 10.0) + _log_beta(logit) + _log_inverse_gamma(log_variance)
        h = mu + self._deviations(logit, log_variance, noise)
        # N(0, exp(h)) with the variance inside of one exponential, so that no scale is ever zero.
        log_seen = -0.5 * (self.returns**2 * jnp.exp(-h) + h + np.log(2 * np.pi))
        return log_prior + jnp.sum(log_normal(noise)) + jnp.sum(log_seen)

    def _deviations(self, logit: Array, log_variance: Array, noise: Array) -> Array:
        """h − μ: every term is φ times the one before and its own innovation."""
        phi = jnp.tanh(0.5 * logit)
        # 1 − φ² = 4 s(logit) s(−logit), which does not round to zero where φ rounds to one.
        log_one_less = math.log(4.0) + jax.nn.log_sigmoid(logit) + jax.nn.log_sigmoid(-logit)
        steps = jnp.exp(0.5 * log_variance) * noise
        steps = steps.at[0].multiply(jnp.exp(-0.5 * log_one_less))

        def compose(first: tuple[Array, Array], then: tuple[Array, Array]) -> tuple[Array, Array]:
            return first[0] * then[0], then[0] * first[1] + then[1]

        return jax.lax.associative_scan(compose, (jnp.full_like(steps, phi), steps))[1]


def _log_beta(logit: Array) -> Array:
    """Beta(20, 1.5), in the logit."""
    sides = 20.0 * jax.nn.log_sigmoid(logit) + 1.5 * jax.nn.log_sigmoid(-logit)
    return sides - float(special.betaln(20.0, 1.5))


def _log_inverse_gamma(log_variance: Array) -> Array:
    """InverseGamma(2.5, 0.025), in the logarithm."""
    constant = 2.5 * math.log(0.025) - math.lgamma(2.5)
    return constant - 2.5 * log_variance - 0.025 * jnp.exp(-log_variance)
