"""Cases with reference values: their data are fixed, and their densities are what the references
are of.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nestedvi as nvi
from nestedvi.bench.campaign import simulated


def density(case):
    return nvi.NumpyroModel(case.model, **case.options)


@pytest.mark.parametrize("name", simulated.SIMULATED)
def test_every_case_has_its_reference(name):
    case = simulated.SIMULATED[name].build()
    assert case.log_Z is not None and np.isfinite(case.log_Z)


@pytest.mark.slow
def test_seeds_at_one_place(x64):
    model = density(simulated.seeds())
    alpha, b, log_tau = np.array([-0.5, 0.1, 1.3, -0.8]), np.linspace(-0.5, 0.5, 21), 1.5
    kind, extract = simulated.SEEDS_TYPE, simulated.SEEDS_EXTRACT
    logits = alpha @ np.stack([np.ones(21), kind, extract, kind * extract]) + b
    expected = stats.binom(simulated.SEEDS_N, 1 / (1 + np.exp(-logits))).logpmf(simulated.SEEDS_R)
    total = expected.sum() + stats.norm(0, 10).logpdf(alpha).sum()
    total += stats.norm(0, np.exp(-log_tau / 2)).logpdf(b).sum()
    total += stats.gamma(0.01, scale=100.0).logpdf(np.exp(log_tau)) + log_tau
    z = {"alpha": jnp.asarray(alpha), "b": jnp.asarray(b), "tau": jnp.asarray(log_tau)}
    assert float(model.log_gamma(z)) == pytest.approx(total)


@pytest.mark.slow
def test_volatility_at_one_place(x64):
    y = simulated.volatility_data(6)
    model = nvi.NumpyroModel(simulated.volatility_model, (y,))
    e, mu, logit, log_sigma = np.linspace(-1, 1, 6), -0.4, 2.0, -1.0
    share, sigma = 1 / (1 + np.exp(-logit)), np.exp(log_sigma)
    phi = 2 * share - 1
    h = [sigma * e[0] / np.sqrt(1 - phi**2)]
    for step in e[1:]:
        h.append(phi * h[-1] + sigma * step)
    total = stats.norm(0, np.exp((mu + np.array(h)) / 2)).logpdf(y).sum()
    total += stats.norm.logpdf(e).sum() + stats.norm(0, 2).logpdf(mu)
    total += stats.beta(20, 1.5).logpdf(share) + np.log(share * (1 - share))
    total += stats.halfnorm(scale=0.5).logpdf(sigma) + log_sigma
    z = {"mu": mu, "phi": logit, "sigma": log_sigma, "noise": e}
    z = {name: jnp.asarray(x) for name, x in z.items()}
    assert float(model.log_gamma(z)) == pytest.approx(total)


def test_a_lorenz_step_is_the_same_in_both_libraries():
    x = np.array([[-8.0, -9.0, 25.0], [1.0, 2.0, 3.0]])
    np.testing.assert_allclose(simulated.lorenz_step(jnp.asarray(x)), simulated.lorenz_step(x))
    np.testing.assert_allclose(
        simulated.lorenz_step(x)[1], [1.0 + 0.02 * 10, 2.0 + 0.02 * 23, 3.0 + 0.02 * -6.0]
    )
    assert simulated.lorenz_data().shape == (20,)
