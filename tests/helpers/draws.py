"""Draws against moments that are known."""

import jax
import numpy as np


def check_draws(density, mean, covariance, num=20_000):
    """Mean and covariance of draws within five standard errors."""
    draws = np.asarray(jax.jit(jax.vmap(density.sample))(jax.random.split(jax.random.key(4), num)))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(np.diag(covariance) / num))
    error = np.std((draws - mean)[:, :, None] * (draws - mean)[:, None], axis=0) / np.sqrt(num)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * error)
