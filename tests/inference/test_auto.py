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
from nestedvi.bench.campaign.run import CASES
from nestedvi.errors import DensityError
from nestedvi.fitting.importance import Trial
from nestedvi.inference import auto
from nestedvi.inference.answer import Answer, Request, RoundingError
from nestedvi.inference.auto import _is_better, _Look
from nestedvi.inference.quick import QuickBase
from nestedvi.inference.search import RunawayError
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
    # What the tail of the weights has beyond the largest differs between streams of draws.
    assert abs(answer.log_Z - case.log_Z) < 4 * answer.log_Z_stderr < 0.05
    assert answer.diagnosis == () and set(answer.samples) == {"mu", "tau", "theta"}
    assert answer.samples["theta"].shape == (2000, len(y))
    mean, sd = case.means["mu"]
    mu = answer.expectation(lambda sites: sites["mu"])
    assert abs(mu.mean - mean) < 5 * max(mu.stderr, sd / 2000**0.5)
    # Either way one search and one importance sampling; the second look is one more search.
    assert "importance sampling" in answer.timings and "tempering" not in answer.timings
    assert (answer.cost.learning < 200) is in_standard_units


def look(share, log_Z_hat, *, is_answered=False):
    request = Request(nvi.Density(three_modes), 2)
    trial = Trial(None, log_Z_hat, share, 0.9, 0.5, 8192)
    answer = Answer(np.zeros((1, 2)), np.zeros(1), 0.0, 0.1) if is_answered else None
    return _Look(request, None, None, QuickBase(trial, False, 0, 0), answer, 0.0, 0.0)


@pytest.mark.parametrize(
    ("own", "other", "is_better"),
    [
        (look(0.09, 0.0), look(0.04, 0.0), True),
        (look(0.07, 0.0), look(0.04, 0.0), False),
        # It keeps more because it misses half of the mass.
        (look(0.09, -0.7), look(0.04, 0.0), False),
        (look(0.5, 0.0, is_answered=True), look(0.4, 0.0), True),
        (look(0.5, -0.7, is_answered=True), look(0.4, 0.0), False),
        (look(0.02, -0.7), look(0.0001, 0.0), True),  # within four of the errors
        # A matter of one or two large weights.
        (look(0.001, 0.0), look(0.0001, 0.0), False),
    ],
)
def test_which_coordinates_are_gone_on_with(own, other, is_better):
    assert _is_better(own, other) == is_better


def test_coordinates_without_a_base_are_left():
    none = look(0.1, 0.0)._replace(quick=QuickBase(None, False, 0, 0))
    assert _is_better(look(0.01, 0.0), none) and not _is_better(none, look(0.01, 0.0))
    assert not _is_better(none, none)


OWN, OTHER = nvi.Density(three_modes), nvi.Density(lambda z: three_modes(z))


@pytest.mark.parametrize(
    ("in_other", "in_own", "goes_on"),
    [
        (DensityError("one point"), look(0.02, 0.0), "own"),
        (look(0.02, 0.0), DensityError("one point"), "other"),
        (look(0.02, 0.0), RoundingError(), "other"),
        (look(0.02, 0.0), RunawayError("along x"), RunawayError),
        (RunawayError("along e"), RunawayError("along x"), RunawayError),
        (DensityError("one point"), DensityError("two points"), DensityError),
        (look(0.02, 0.0), look(0.09, 0.0), "own"),
        (look(0.02, 0.0), look(0.03, 0.0), "other"),
    ],
)
def test_a_search_that_fails_in_some_coordinates_leaves_the_others(
    monkeypatch, in_other, in_own, goes_on
):
    def outcome(keys, request, stages):
        result = in_own if keys == "own" else in_other
        if isinstance(result, Exception):
            raise result
        return result._replace(target=keys)

    monkeypatch.setattr(auto, "_look", outcome)
    own, other = Request(OWN, 2), Request(OTHER, 2)
    if isinstance(goes_on, str):
        assert auto._look_twice("own", own, "other", other, None)[0].target == goes_on
    else:
        with pytest.raises(goes_on, match=r"x|two"):  # said of the user's own sites
            auto._look_twice("own", own, "other", other, None)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::UserWarning")
def test_stochastic_volatility_beyond_the_flexible_base():
    """103 dimensions, against particle filters: a Gaussian that particles mend. Its standard error
    counts mass that draws hardly reach, and is wider than the error.
    """
    case = CASES["volatility-100"].build()
    answer = nvi.sample(jax.random.key(0), case.model, **case.options)
    assert {"fit 1", "run 1", "frozen run"} <= set(answer.timings)
    assert answer.log_Z_stderr < 0.12
    assert abs(answer.log_Z - case.log_Z) < min(4 * answer.log_Z_stderr, 0.15)
    assert answer.diagnosis == ()
