"""Regressions: with flat priors the mode of the coefficients is least squares."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import stats

from nestedvi.bench.posteriordb import regression

RNG = np.random.default_rng(3)
X = np.column_stack([np.ones(30), RNG.normal(size=(30, 2))])
Y = X @ [1.0, -2.0, 0.5] + RNG.normal(size=30)


@pytest.mark.parametrize("name", ["flat_regression", "cauchy_noise_regression"])
def test_the_mode_of_flat_coefficients_is_least_squares(name, x64):
    model = getattr(regression, name)
    best = np.linalg.lstsq(X, Y)[0]

    def log_joint(beta):
        return log_density(model, (X, Y), {}, {"beta": beta, "sigma": 0.8})[0]

    gradient = jax.grad(log_joint)
    assert np.abs(gradient(jnp.asarray(best))).max() < 1e-9
    assert np.abs(gradient(jnp.asarray(best + 0.1))).max() > 1


@pytest.mark.parametrize(
    ("name", "values", "log_prior"),
    [
        (
            "normal_regression",
            {"beta": np.array([0.5, 1.0, 2.0]), "sigma": 2.0},
            stats.norm.logpdf([0.5, 1.0, 2.0], 0, 10).sum() + stats.halfnorm.logpdf(2.0, 0, 10),
        ),
        (
            "diamonds",
            {"b": np.array([0.5, 1.0, 2.0]), "Intercept": 7.0, "sigma": 2.0},
            stats.norm.logpdf([0.5, 1.0, 2.0]).sum()
            + stats.t.logpdf(7.0, 3, 8, 10)
            + stats.t.logpdf(2.0, 3, 0, 10)
            + np.log(2),
        ),
    ],
)
def test_proper_priors_are_normalised(name, values, log_prior, x64):
    """Without rows there is only the prior."""
    model = getattr(regression, name)
    found = log_density(model, (X[:0], Y[:0]), {}, values)[0]
    assert float(found) == pytest.approx(log_prior)
