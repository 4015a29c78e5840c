"""Time series: predictions by hand, and GARCH's triangle."""

import jax
import numpy as np
import pytest
from numpyro import handlers

from nestedvi.bench.posteriordb.time_series import arma11, autoregression, garch11
from nestedvi.densities.numpyro_model import NumpyroModel

Y = np.array([0.4, -0.2, 0.7])


def observed(model, values, *arguments):
    """The distribution of the observed site, given the latent ones."""
    trace = handlers.trace(handlers.substitute(model, values)).get_trace(*arguments)
    return trace["y"]["fn"]


def test_arma_predicts_from_the_last_shock(x64):
    values = {"mu": np.array(0.1), "phi": 0.5, "theta": 0.3, "sigma": 1.2}
    first = 0.1 + 0.5 * 0.1
    second = 0.1 + 0.5 * 0.4 + 0.3 * (0.4 - first)
    third = 0.1 + 0.5 * -0.2 + 0.3 * (-0.2 - second)
    found = observed(arma11, {k: jax.numpy.asarray(v) for k, v in values.items()}, Y)
    np.testing.assert_allclose(found.loc, [first, second, third])


def test_an_autoregression_takes_the_lags_it_is_given(x64):
    values = {"alpha": 0.1, "beta": np.array([0.5, -0.2]), "sigma": 1.0}
    found = observed(autoregression, values, np.array([[1.0, 2.0]]), Y[:1])
    np.testing.assert_allclose(found.loc, [0.1 + 0.5 - 0.4])


def test_garch_is_flat_on_a_triangle(x64):
    """α_1 + β_1 < 1 wherever the coordinates go, and the density has no 1 / (1 − α_1)."""
    model = NumpyroModel(garch11, (Y, 0.5))
    for seed in range(5):
        z = {
            name: x + 2 * jax.random.normal(jax.random.key(seed + i), np.shape(x))
            for i, (name, x) in enumerate(model.example.items())
        }
        sites = model.constrain(z)
        assert 0 < sites["alpha1"] + sites["beta1"] < 1
    values = {"mu": 0.1, "alpha0": 0.4, "alpha1": 0.3, "beta1": 0.6}
    values = {name: jax.numpy.asarray(x) for name, x in values.items()}
    scale = observed(garch11, values, Y, 0.5).scale
    second = 0.4 + 0.3 * 0.3**2 + 0.6 * 0.25
    expected = [0.25, second, 0.4 + 0.3 * 0.3**2 + 0.6 * second]
    np.testing.assert_allclose(scale**2, expected)
    assert model.improper == ("mu", "alpha0", "alpha1", "beta1")


@pytest.mark.slow
def test_the_prior_can_be_drawn(key):
    draws = NumpyroModel(arma11, (Y,)).prior_draws(key, 3)
    assert {x.shape for x in draws.values()} == {(3,)}
