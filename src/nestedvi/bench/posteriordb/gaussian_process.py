"""Gaussian processes with a squared exponential covariance, seen with normal noise or through
counts, and eight schools: effects with a normal prior of unknown scale.
"""

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist

__all__ = ["eight_schools", "gp_poisson", "gp_regression"]


def _scales(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The covariance's length scale and size, and its matrix over the points."""
    rho = numpyro.sample("rho", dist.Gamma(25, 4))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2))
    return alpha, alpha**2 * jnp.exp(-0.5 * ((x[:, None] - x) / rho) ** 2)


def gp_regression(x: jax.Array, y: jax.Array) -> None:
    """The values summed out; σ is the noise's variance, as in the program."""
    _, covariance = _scales(x)
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    covariance = covariance + sigma * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance), obs=y)


def gp_poisson(x: jax.Array, counts: jax.Array) -> None:
    """Log intensities f = L f̃. The jitter of 1e-10 is the program's: in single precision the
    factor L is NaN for some length scales.
    """
    _, covariance = _scales(x)
    plain = numpyro.sample("f_tilde", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    root = jnp.linalg.cholesky(covariance + 1e-10 * jnp.eye(len(x)))
    f = numpyro.deterministic("f", root @ plain)
    numpyro.sample("counts", dist.Poisson(jnp.exp(f)), obs=counts)


def eight_schools(y: jax.Array, stderr: jax.Array) -> None:
    """Effects of coaching in eight schools, written without centring."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    plain = numpyro.sample("theta_trans", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    theta = numpyro.deterministic("theta", mu + tau * plain)
    numpyro.sample("y", dist.Normal(theta, stderr), obs=y)
