"""Evidences of the campaign's conjugate models: log p(y, θ) − log p(θ | y) is the same everywhere,
or quadrature over unconstrained coordinates.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nestedvi as nvi
from nestedvi.bench.campaign import conjugate
from nestedvi.bench.campaign.case import log_integral

# Quadratures: they change only when a case does.
pytestmark = pytest.mark.slow


def density(case):
    return nvi.NumpyroModel(case.model, **case.options)


def on_a_line(case, low, high, num=4001):
    """log ∫ of a model with one coordinate."""
    model = density(case)
    (name,) = model.example
    shape = model.example[name].shape
    z = jnp.linspace(low, high, num)
    values = jax.vmap(lambda x: model.log_gamma({name: x.reshape(shape)}))(z)
    return log_integral(np.asarray(values), float(z[1] - z[0]))


def test_a_regression_is_its_joint_over_its_posterior(x64):
    case = conjugate.regression(4, 12, noise=0.7)
    x, y = case.options["model_args"]
    covariance = np.linalg.inv(x.T @ x / 0.49 + np.eye(4))
    posterior = stats.multivariate_normal(covariance @ x.T @ y / 0.49, covariance)
    b = np.array([0.3, -1.0, 0.5, 0.0])
    log_joint = float(density(case).log_gamma({"b": jnp.asarray(b)}))
    assert log_joint - posterior.logpdf(b) == pytest.approx(case.log_Z)
    np.testing.assert_allclose(case.means["b"][0], posterior.mean)
    np.testing.assert_allclose(case.means["b"][1] ** 2, np.diag(covariance))


@pytest.mark.parametrize("size", [10.0, 1e4])
def test_counts_by_quadrature(size, x64):
    case = conjugate.counts(size, 5)
    mean, sd = case.means["rate"]
    width = 12 * sd / mean
    found = on_a_line(case, np.log(mean) - width, np.log(mean) + width)
    assert found == pytest.approx(case.log_Z, abs=1e-6)


def test_trials_and_edges_by_quadrature(x64):
    case = conjugate.trials(1000, 5)
    mean, sd = case.means["p"]
    centre, width = np.log(mean / (1 - mean)), 12 * sd / (mean * (1 - mean))
    assert on_a_line(case, centre - width, centre + width) == pytest.approx(case.log_Z, abs=1e-6)
    # Of independent probabilities one is enough.
    model = density(conjugate.edges())
    z = jnp.linspace(-800.0, 800.0, 8001)
    at = jax.vmap(lambda x: model.log_gamma({"p": jnp.array([x, 0.0, 0.0])}))(z)
    others = 2 * stats.beta(0.05, 0.05).logpdf(0.5) + 4 * np.log(0.5) + 2 * np.log(0.5)
    assert log_integral(np.asarray(at), 0.2) - others == pytest.approx(np.log(0.5), abs=1e-4)


@pytest.mark.parametrize("concentration", [1.0, 0.1])
def test_simplices_are_their_joint_over_their_posterior(concentration, x64):
    y = np.array([3, 0, 1])
    case = conjugate.simplex(concentration, y)
    model = density(case)
    z = {"p": jnp.array([0.4, -0.3])}
    p = model.constrain(z)["p"]
    jacobian = jax.jacobian(lambda z: model.constrain({"p": z})["p"][:2])(z["p"])
    log_posterior = stats.dirichlet(concentration + y).logpdf(np.asarray(p) / np.sum(p))
    log_posterior += np.linalg.slogdet(jacobian)[1]
    assert float(model.log_gamma(z)) - log_posterior == pytest.approx(case.log_Z, abs=1e-6)


def test_missing_rows_and_ragged_tables(x64):
    """What is not seen has its own density given the rest, and nothing else."""
    case = conjugate.missing()
    x, *_ = case.options["model_args"]
    slope, hidden = 0.7, np.linspace(-1, 1, 30)
    model = density(case)
    log_joint = float(
        model.log_gamma({"slope": jnp.asarray(slope), "y_unobserved": jnp.asarray(hidden)})
    )
    log_posterior = stats.norm(*case.means["slope"]).logpdf(slope)
    log_posterior += stats.norm(slope * x, 0.5).logpdf(hidden).sum()
    assert log_joint - log_posterior == pytest.approx(case.log_Z)
    case = conjugate.masked()
    mu = np.linspace(-1, 2, 6)
    log_joint = float(density(case).log_gamma({"mu": jnp.asarray(mu)}))
    log_posterior = stats.norm(*case.means["mu"]).logpdf(mu).sum()
    assert log_joint - log_posterior == pytest.approx(case.log_Z)


def test_a_walk_is_its_joint_over_its_posterior(x64):
    case = conjugate.walk(5)
    covariance = 0.25 * np.minimum.outer(np.arange(1, 6), np.arange(1, 6))
    posterior = np.linalg.inv(np.linalg.inv(covariance) + np.eye(5))
    mean, sd = case.means["x"]
    np.testing.assert_allclose(sd, np.sqrt(np.diag(posterior)))
    x = np.array([0.1, 0.5, -0.2, 0.0, 1.0])
    log_joint = float(density(case).log_gamma({"x": jnp.asarray(x)}))
    log_posterior = stats.multivariate_normal(mean, posterior).logpdf(x)
    assert log_joint - log_posterior == pytest.approx(case.log_Z)


def test_flat_priors(x64):
    case = conjugate.flat_mean()
    assert on_a_line(case, -9.0, 10.0) == pytest.approx(case.log_Z) and case.must_say == "improper"
    assert conjugate.unidentified().log_Z is None
