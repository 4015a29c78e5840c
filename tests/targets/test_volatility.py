"""Stochastic volatility: the density by SciPy in the model's own coordinates, the returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestedvi.targets.volatility import StochasticVolatility, pound_returns


def test_the_density_by_hand(x64):
    """Log variances by a loop; the determinant of z ↦ (μ, φ, σ², h) by differentiation."""
    density, y = StochasticVolatility(12), pound_returns()[:12]

    def own(z):
        mu, phi, variance = z[0], 2 / (1 + jnp.exp(-z[1])) - 1, jnp.exp(z[2])
        h = [mu + jnp.sqrt(variance / (1 - phi**2)) * z[3]]
        for noise in z[4:]:
            h.append(mu + phi * (h[-1] - mu) + jnp.sqrt(variance) * noise)
        return jnp.stack([mu, phi, variance, *h])

    log_gamma = jax.jit(lambda z: density.log_gamma(z))
    own, jacobian = jax.jit(own), jax.jit(jax.jacobian(own))
    for z in 0.5 * np.random.default_rng(0).normal(size=(3, 15)):
        mu, phi, variance, *h = np.asarray(own(z))
        by_hand = stats.norm.logpdf(mu, 0, 10) + stats.invgamma.logpdf(variance, 2.5, scale=0.025)
        by_hand += stats.beta.logpdf((1 + phi) / 2, 20, 1.5) - np.log(2)
        spread = np.sqrt(variance)
        by_hand += stats.norm.logpdf(h[0], mu, spread / np.sqrt(1 - phi**2))
        by_hand += stats.norm.logpdf(h[1:], mu + phi * (np.array(h[:-1]) - mu), spread).sum()
        by_hand += stats.norm.logpdf(y, 0, np.exp(np.array(h) / 2)).sum()
        by_hand += np.linalg.slogdet(np.asarray(jacobian(z)))[1]
        np.testing.assert_allclose(log_gamma(z), by_hand, rtol=1e-9)


def test_the_returns_are_those_of_the_pound():
    returns = pound_returns()
    assert returns.shape == (936,) and abs(returns.mean()) < 1e-12
    first = 100 * np.log(1.8180 / 1.8310)
    np.testing.assert_allclose(returns[0] - returns[1], first - 100 * np.log(1.8545 / 1.8180))


@pytest.mark.parametrize("num", [0, 937])
def test_there_are_so_many_returns(num):
    with pytest.raises(ValueError, match="936 returns"):
        StochasticVolatility(num)
