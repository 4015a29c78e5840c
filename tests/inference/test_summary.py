"""Weighted statistics of every scalar: by hand on a few particles, exact quantiles on many."""

import collections

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestedvi.inference.summary import weighted_mean
from nestedvi.particles.weights import normalise, systematic
from tests.helpers.posteriors import posterior_of, three_particles


@pytest.fixture
def three():
    return three_particles()


def test_means_and_spreads_by_hand(three):
    sites = three.summary().to_dict()["sites"]
    assert list(sites) == ["a", "b[0, 0]", "b[1, 0]"]
    assert sites["a"]["mean"] == pytest.approx(2.0)
    assert sites["a"]["sd"] == pytest.approx(np.sqrt(0.5 * 1 + 0.25 * 4))
    assert sites["b[1, 0]"]["mean"] == pytest.approx(2.0)
    assert [sites["b[0, 0]"][k] for k in ("mean", "sd")] == pytest.approx([0.5, np.sqrt(0.75)])


def test_quantiles_of_weighted_particles():
    """Uniform points weighted by a normal density are that normal: quantiles to a thousandth of its
    spread.
    """
    x = jnp.linspace(-5.0, 7.0, 20001)
    values = posterior_of(x, -0.5 * (x - 1) ** 2).summary().to_dict()["sites"]["z"]
    for column, level in {"5%": 0.05, "50%": 0.5, "95%": 0.95}.items():
        assert abs(values[column] - stats.norm(1, 1).ppf(level)) < 1e-3
    assert values["mean"] == pytest.approx(1, abs=1e-3) and values["sd"] == pytest.approx(
        1, abs=1e-3
    )


def test_a_summary_prints_and_serialises(three):
    text = str(three.summary())
    assert "b[1, 0]" in text and "log Z: 1.5000 ± 0.0100" in text and "of 3 particles" in text
    assert "diagnosis: nothing found wrong" in text
    content = three.summary().to_dict()
    assert content["log_Z"] == 1.5 and content["num_particles"] == 3 and content["diagnosis"] == []
    assert "It is odd." in str(posterior_of(jnp.zeros(30), remarks=("It is odd.",)).summary())


def test_names_of_other_pytrees():
    Pair = collections.namedtuple("Pair", "left right")
    sites = posterior_of(Pair(jnp.zeros((4, 2)), [jnp.ones(4)])).summary().to_dict()["sites"]
    assert list(sites) == ["left[0]", "left[1]", "right.0"]


def test_the_error_of_a_mean_comes_from_families():
    """Two families whose weighted deviations are ±¼: √(2 · 2 · ¼²); one family has no error."""
    x, w_bar = np.array([0.0, 4.0, 1.0, 3.0]), np.array([1.0, 3.0, 2.0, 2.0]) / 8
    mean, error = weighted_mean(x, w_bar, np.array([0, 0, 1, 1]))
    np.testing.assert_allclose([mean, error], [2.5, np.sqrt(2 * 2 * 0.25**2)])
    assert np.isnan(weighted_mean(x, w_bar, np.zeros(4, int))[1])


def test_the_error_of_a_mean_is_that_of_smc():
    """Systematic resampling of weighted draws, then moves that keep half of what was: over 300 runs
    the squared error is what families say, within four standard errors of a variance.
    """
    rng = np.random.default_rng(0)
    means, errors = [], []
    for _ in range(300):
        z = rng.normal(size=800)
        family = systematic(rng.uniform(), normalise(0.7 * z), 200)
        x = 0.7 + 0.5 * (z[family] - 0.7) + 0.75**0.5 * rng.normal(size=200)
        _, numbered = np.unique(family, return_inverse=True)
        mean, error = weighted_mean(x, np.full(200, 1 / 200), numbered)
        means.append(mean)
        errors.append(error**2)
    assert abs(np.mean(means) - 0.7) < 4 * np.sqrt(np.mean(errors) / 300)
    ratio = np.mean(errors) / np.var(means, ddof=1)
    assert abs(np.log(ratio)) < 4 * np.sqrt(2 / 299)
