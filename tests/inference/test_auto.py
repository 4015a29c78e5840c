"""`auto` on targets whose log Z is known."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestedvi as nvi
from nestedvi.bench.campaign.hierarchies import EFFECT, ERROR, groups
from tests.helpers.three_modes import LOG_Z, MODES, SHARES, three_modes


@pytest.fixture(scope="module")
def posterior():
    return nvi.sample(jax.random.key(1), three_modes, dim=2, num_particles=1000)


def test_auto_finds_log_Z_and_every_mode(posterior):
    assert (
        abs(posterior.log_Z - LOG_Z) < 5 * posterior.log_Z_stderr and posterior.log_Z_stderr < 0.02
    )
    weights = np.exp(posterior.log_weights - jax.nn.logsumexp(posterior.log_weights))
    nearest = np.argmin(
        np.linalg.norm(np.asarray(posterior.samples)[:, None] - np.asarray(MODES), axis=2), axis=1
    )
    shares = np.bincount(nearest, weights, minlength=3)
    assert np.all(np.abs(shares - np.asarray(SHARES)) < 5 * np.sqrt(0.25 / posterior.ess))
    assert posterior.diagnosis == () and posterior.khat < 0.7 and posterior.ess > 800


@pytest.mark.slow
def test_few_particles_still_leave_some_to_fit():
    """`sample` takes 20 particles: a seventh of them is held out, not all."""
    posterior = nvi.sample(jax.random.key(0), three_modes, dim=2, num_particles=20)
    assert abs(posterior.log_Z - LOG_Z) < 5 * max(posterior.log_Z_stderr, 0.1)


def regression(x, y):
    """Known noise, so that the evidence is a Gaussian's."""
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ slopes, 0.5), obs=y)


@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
def test_a_regression_in_both_precisions(double):
    """A whole answer: log Z and the means against closed forms, nothing in the diagnosis."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.5 * rng.normal(size=30)
    covariance = 4.0 * x @ x.T + 0.25 * np.eye(30)
    exact = stats.multivariate_normal(np.zeros(30), covariance).logpdf(y)
    mean = 4.0 * x.T @ np.linalg.solve(covariance, y)
    with jax.enable_x64(double):
        answer = nvi.sample(jax.random.key(1), regression, model_args=(x, y))
        row = {row.name: row.values for row in answer.summary().rows}
    # Weights are exact in either precision.
    assert answer.samples["slopes"].dtype == (jnp.float64 if double else jnp.float32)
    assert answer.log_weights.dtype == np.float64
    assert abs(answer.log_Z - exact) < 4 * answer.log_Z_stderr < 0.02
    assert answer.diagnosis == () and answer.ess > 1900
    for i in range(3):
        slope = row[f"slopes[{i}]"]
        assert abs(slope["mean"] - mean[i]) < 5 * slope["sd"] / 1900**0.5
    assert answer.cost.sampling == 0 and answer.timings["compilation"] > 0


@pytest.mark.parametrize(("error", "in_standard_units"), [(None, True), (0.05, False)])
def test_hierarchies_are_answered_in_the_coordinates_that_suit(error, in_standard_units):
    """Eight schools say little of each effect: standard units. Twenty effects that are all but
    known: the user's own. log Z and the mean of μ against quadrature, sites by the user's names.
    """
    if error is None:
        y, errors = EFFECT, ERROR
    else:
        y, errors = np.random.default_rng(0).normal(2.0, 1.0, size=20), np.full(20, error)
    case = groups(y, errors, centred=True)
    answer = nvi.sample(jax.random.key(2), case.model, **case.options)
    assert abs(answer.log_Z - case.log_Z) < 4 * answer.log_Z_stderr < 0.02
    assert answer.diagnosis == () and set(answer.samples) == {"mu", "tau", "theta"}
    assert answer.samples["theta"].shape == (2000, len(y))
    mean, sd = case.means["mu"]
    mu = answer.expectation(lambda sites: sites["mu"])
    assert abs(mu.mean - mean) < 5 * max(mu.stderr, sd / 2000**0.5)
    # Either way one search and one importance sampling; the second look is one more search.
    assert "importance sampling" in answer.timings and "tempering" not in answer.timings
    assert (answer.cost.learning < 200) is in_standard_units
