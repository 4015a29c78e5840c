"""Linear regressions: flat priors, a Cauchy prior of the noise, weak normal priors, and one with
hundreds of rows a coefficient. The design matrices are in `designs`.
"""

import jax
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import constraints

from nestedvi.bench.posteriordb.priors import flat

__all__ = [
    "cauchy_noise_regression",
    "diamonds",
    "flat_regression",
    "kilpisjarvi",
    "normal_regression",
]


def flat_regression(x: jax.Array, y: jax.Array) -> None:
    """Coefficients and the noise's scale are flat: their prior is improper."""
    beta = numpyro.sample("beta", flat(constraints.real_vector, x.shape[1]))
    sigma = numpyro.sample("sigma", flat(constraints.positive))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def cauchy_noise_regression(x: jax.Array, y: jax.Array) -> None:
    """Flat coefficients, and a half-Cauchy scale of the noise."""
    beta = numpyro.sample("beta", flat(constraints.real_vector, x.shape[1]))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def normal_regression(x: jax.Array, y: jax.Array) -> None:
    """Everything normal, the noise's scale above zero: the model `blr`."""
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def kilpisjarvi(
    x: jax.Array, y: jax.Array, level: tuple[float, float], slope: tuple[float, float]
) -> None:
    """Summer temperatures by year, counted from nought: level and slope are nearly one number. The
    pairs are mean and standard deviation of their priors; the noise's scale is flat.
    """
    alpha = numpyro.sample("alpha", dist.Normal(*level))
    beta = numpyro.sample("beta", dist.Normal(*slope))
    sigma = numpyro.sample("sigma", flat(constraints.positive))
    numpyro.sample("y", dist.Normal(alpha + beta * x, sigma), obs=y)


def diamonds(x: jax.Array, y: jax.Array) -> None:
    """Log prices of diamonds on 24 centred polynomials that are close to one another."""
    b = numpyro.sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    intercept = numpyro.sample("Intercept", dist.StudentT(3, 8, 10))
    # The absolute value of a t is the t above zero.
    sigma = numpyro.sample("sigma", dist.FoldedDistribution(dist.StudentT(3, 0, 10)))
    numpyro.sample("y", dist.Normal(intercept + x @ b, sigma), obs=y)
