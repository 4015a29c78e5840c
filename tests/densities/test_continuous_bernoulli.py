"""The continuous Bernoulli against quadrature: normaliser, mean, draws at every size of the logit,
gradients where it is weak.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.densities.continuous_bernoulli import (
    LOGIT_LIMIT,
    continuous_bernoulli_log_prob,
    continuous_bernoulli_mean,
    continuous_bernoulli_sample,
)

# Around the parameter 1/2 (η = 0), around the change from series to closed form (|η| = 1), and at
# the limit.
LOGITS = np.array(
    [-15.9, -4.0, -1.001, -0.999, -0.3, -1e-3, -1e-9, 0.0, 1e-6, 0.02, 0.999, 1.001, 2.5, 15.9]
)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
X, DX = 0.5 * (NODES + 1), 0.5 * WEIGHTS


def exact_moments():
    density = np.exp(LOGITS[:, None] * X)
    density /= (density * DX).sum(axis=1, keepdims=True)
    return density, (density * X * DX).sum(axis=1)


@pytest.mark.usefixtures("x64")
def test_density_and_mean_against_quadrature():
    density, mean = exact_moments()
    log_prob = continuous_bernoulli_log_prob(jnp.asarray(X), jnp.asarray(LOGITS)[:, None])
    np.testing.assert_allclose(log_prob, np.log(density), rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        continuous_bernoulli_mean(jnp.asarray(LOGITS)), mean, rtol=0, atol=1e-9
    )


@pytest.mark.usefixtures("x64")
def test_the_slope_in_the_logit_is_x_minus_the_mean():
    """An exponential family: ∂ log p/∂η = x − E[x], also where the branches meet and at η = 0."""
    _, mean = exact_moments()
    slope = jax.vmap(jax.grad(continuous_bernoulli_log_prob, argnums=1), in_axes=(None, 0))(
        0.3, jnp.asarray(LOGITS)
    )
    np.testing.assert_allclose(slope, 0.3 - mean, rtol=0, atol=2e-9)


def test_single_precision_is_good_near_one_half():
    """Where the textbook form loses every digit, float32 stays within rounding of the exact
    density.
    """
    density, mean = exact_moments()
    x, logits = jnp.asarray(X, jnp.float32), jnp.asarray(LOGITS, jnp.float32)
    np.testing.assert_allclose(
        continuous_bernoulli_log_prob(x, logits[:, None]), np.log(density), rtol=3e-6, atol=3e-6
    )
    np.testing.assert_allclose(continuous_bernoulli_mean(logits), mean, atol=3e-6)
    slope = jax.vmap(jax.grad(continuous_bernoulli_log_prob, argnums=1), in_axes=(None, 0))(
        0.3, logits
    )
    np.testing.assert_allclose(slope, 0.3 - mean, atol=3e-6)


def test_logits_beyond_the_limit_count_as_the_limit_and_get_no_gradient():
    value, slope = jax.value_and_grad(continuous_bernoulli_log_prob, argnums=1)(0.0, -40.0)
    assert value == continuous_bernoulli_log_prob(0.0, -LOGIT_LIMIT) and slope == 0.0
    assert jax.grad(continuous_bernoulli_log_prob, argnums=1)(0.0, -15.0) < 0
    assert continuous_bernoulli_log_prob(0.0, -40.0, 4.0) == continuous_bernoulli_log_prob(
        0.0, -4.0
    )


@pytest.mark.usefixtures("x64")
def test_draws_follow_the_density(key):
    """Mean and second moment of draws, within five standard errors."""
    density, _ = exact_moments()
    num = 20_000
    logits = jnp.broadcast_to(jnp.asarray(LOGITS), (num, len(LOGITS)))
    draws = np.asarray(continuous_bernoulli_sample(key, logits))
    assert (draws >= 0).all() and (draws <= 1).all()
    for power in (1, 2):
        values = draws**power
        expected = (density * X**power * DX).sum(axis=1)
        assert (
            np.abs(values.mean(axis=0) - expected) < 5 * values.std(axis=0) / np.sqrt(num)
        ).all()
