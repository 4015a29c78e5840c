"""Time series with observed shocks: autoregression, ARMA(1, 1) and GARCH(1, 1)."""

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import constraints

from nestedvi.bench.posteriordb.priors import flat

__all__ = ["arma11", "autoregression", "garch11"]


def autoregression(lags: jax.Array, y: jax.Array) -> None:
    """y_t on its own past; column k of `lags` is y_{t-k}."""
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([lags.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    numpyro.sample("y", dist.Normal(alpha + lags @ beta, sigma), obs=y)


def arma11(y: jax.Array) -> None:
    """y_t = μ + φ y_{t-1} + θ e_{t-1} + e_t with normal e_t; the first one is around μ + φ μ."""
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    phi = numpyro.sample("phi", dist.Normal(0, 2))
    theta = numpyro.sample("theta", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    # What the past predicts without its last shock.
    regular = mu + phi * jnp.concatenate([mu[None], y[:-1]])

    def step(shock, now):
        prediction, seen = now
        prediction = prediction + theta * shock
        return seen - prediction, prediction

    _, predicted = jax.lax.scan(step, jnp.zeros_like(mu), (regular, y))
    numpyro.sample("y", dist.Normal(predicted, sigma), obs=y)


def garch11(y: jax.Array, first_scale: float) -> None:
    """σ_t² = α_0 + α_1 (y_{t-1} − μ)² + β_1 σ_{t-1}², all flat where α_1 + β_1 < 1."""
    mu = numpyro.sample("mu", flat(constraints.real))
    alpha0 = numpyro.sample("alpha0", flat(constraints.positive))
    alpha1 = numpyro.sample("alpha1", flat(constraints.unit_interval))
    # Flat on a triangle: a uniform given α_1 would not be.
    beta1 = numpyro.sample("beta1", flat(constraints.interval(0.0, 1 - alpha1)))

    def step(variance, before):
        variance = alpha0 + alpha1 * (before - mu) ** 2 + beta1 * variance
        return variance, variance

    first = jnp.full_like(mu, first_scale**2)
    _, later = jax.lax.scan(step, first, y[:-1])
    scale = jnp.sqrt(jnp.concatenate([first[None], later]))
    numpyro.sample("y", dist.Normal(mu, scale), obs=y)
