"""Evidences of the campaign's hierarchies against other integrals of the same models."""

import numpy as np
import pytest
from scipy import integrate, stats

import nestedvi as nvi
from nestedvi.bench.campaign import hierarchies
from tests.densities.test_numpyro_model import log_evidence

# Quadratures: they change only when a case does.
pytestmark = pytest.mark.slow


def density(case):
    return nvi.NumpyroModel(case.model, **case.options)


def test_groups_against_a_double_integral():
    """One group: y ~ N(μ, τ² + error²), over μ and τ by adaptive quadrature."""
    log_Z, mean, _ = hierarchies.group_truth(np.array([3.0]), np.array([2.0]))

    def joint(log_tau, power):
        tau = np.exp(log_tau)
        prior = stats.halfcauchy(scale=5.0).pdf(tau) * tau
        return (
            prior
            * integrate.quad(
                lambda mu: (
                    mu**power
                    * stats.norm.pdf(mu, 0, 5)
                    * stats.norm.pdf(3.0, mu, np.hypot(tau, 2.0))
                ),
                -40,
                40,
            )[0]
        )

    zero = integrate.quad(joint, -12, 10, args=(0,), limit=200, epsrel=1e-6)[0]
    one = integrate.quad(joint, -12, 10, args=(1,), limit=200, epsrel=1e-6)[0]
    assert log_Z == pytest.approx(np.log(zero), abs=1e-4)
    assert mean == pytest.approx(one / zero, abs=1e-3)


def test_centred_and_not_centred_are_one_model():
    """At one place of the effects their joint densities differ by the change of variables, τ^8."""
    both = [
        hierarchies.groups(hierarchies.EFFECT, hierarchies.ERROR, centred)
        for centred in (True, False)
    ]
    assert both[0].log_Z == both[1].log_Z
    mu, log_tau, epsilon = 2.0, 0.7, np.linspace(-1, 1, 8)
    theta = mu + np.exp(log_tau) * epsilon
    at_theta = density(both[0]).log_gamma({"mu": mu, "tau": log_tau, "theta": theta})
    at_epsilon = density(both[1]).log_gamma({"mu": mu, "tau": log_tau, "epsilon": epsilon})
    assert float(at_epsilon - at_theta) == pytest.approx(8 * log_tau, abs=1e-3)


def test_a_horseshoe_of_one_column_against_its_dense_form():
    """y ~ N(0, σ² I + τ² λ² x xᵀ), on a grid of its three scales."""
    x = np.ones((3, 1))
    y = np.array([1.2, 0.4, 0.9])
    log_t, log_s, log_l = np.linspace(-16, 6, 89), np.linspace(-4, 4, 81), np.linspace(-16, 16, 129)
    shrunk = np.exp(2 * (log_t[:, None, None] + log_l))
    noise = np.exp(2 * log_s)[None, :, None]
    # Along x the variance is σ² + 3 τ² λ²; across it σ².
    along = noise + 3 * shrunk
    square = (y.sum() ** 2 / 3) / along + (y @ y - y.sum() ** 2 / 3) / noise
    log_p = -0.5 * square - 0.5 * np.log(along) - np.log(noise) - 1.5 * np.log(2 * np.pi)
    log_p += (stats.halfcauchy(scale=0.3).logpdf(np.exp(log_t)) + log_t)[:, None, None]
    log_p += (stats.halfnorm(scale=2.0).logpdf(np.exp(log_s)) + log_s)[:, None]
    log_p += stats.halfcauchy.logpdf(np.exp(log_l)) + log_l
    steps = (log_t[1] - log_t[0]) * (log_s[1] - log_s[0]) * (log_l[1] - log_l[0])
    expected = np.log(np.exp(log_p).sum() * steps)
    # The truth's grid of σ is for forty rows: two nats either way.
    assert hierarchies.horseshoe_log_Z(x, y) == pytest.approx(expected, abs=0.02)


BY_QUADRATURE = {
    "bounded": (hierarchies.bounded, 601, 20.0),
    "circular": (hierarchies.circular, 601, 25.0),
    "ordered": (hierarchies.ordered, 601, 12.0),
    "correlation": (lambda: hierarchies.correlation(2, 30), 2001, 12.0),
}


@pytest.mark.parametrize("name", BY_QUADRATURE)
def test_small_models_in_unconstrained_coordinates(name, x64):
    build, num, half_width = BY_QUADRATURE[name]
    case = build()
    found = log_evidence(density(case), num=num, half_width=half_width)
    assert found == pytest.approx(case.log_Z, abs=2e-4)


def test_heavy_priors_by_importance_sampling():
    """From a wide Student-t around the data, to four standard errors."""
    case = hierarchies.heavy_location()
    y = case.options["model_args"][0]
    rng = np.random.default_rng(0)
    far, wide = stats.t(2, loc=30.0, scale=0.4), stats.t(3, loc=-0.8, scale=0.8)
    mu, log_sigma = far.rvs(400_000, random_state=rng), wide.rvs(400_000, random_state=rng)
    log_w = stats.norm(mu[:, None], np.exp(log_sigma)[:, None]).logpdf(y).sum(axis=1)
    log_w += stats.cauchy.logpdf(mu) + stats.halfcauchy.logpdf(np.exp(log_sigma)) + log_sigma
    w = np.exp(log_w - far.logpdf(mu) - wide.logpdf(log_sigma))
    error = w.std() / w.mean() / np.sqrt(len(w))
    assert error < 0.01 and abs(np.log(w.mean()) - case.log_Z) < 4 * error


def test_wide_counts_by_laplace():
    """So many counts make the posterior Gaussian, to one part in their sum."""
    case = hierarchies.wide_counts()
    y = case.options["model_args"][0]
    mean, sd = case.means["log_rate"]
    log_joint = stats.poisson(np.exp(mean)).logpmf(y).sum() + stats.norm(0, 100).logpdf(mean)
    assert case.log_Z == pytest.approx(log_joint + np.log(sd * np.sqrt(2 * np.pi)), abs=1e-4)


def test_labels_have_six_equal_modes():
    """Widely separated: six times the mass of one order, each mean with its own eight rows."""
    case = hierarchies.labels()
    y = case.options["model_args"][0]
    coarse = hierarchies.labels_log_Z(y, 121)
    assert case.log_Z == pytest.approx(coarse, abs=1e-3)
    log_one = 0.0
    for rows in y.reshape(3, 8):
        covariance = 0.49 * np.eye(8) + 25.0
        log_one += stats.multivariate_normal(np.zeros(8), covariance).logpdf(rows)
    assert case.log_Z == pytest.approx(log_one - 24 * np.log(3) + np.log(6), abs=0.1)
