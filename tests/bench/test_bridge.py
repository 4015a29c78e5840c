"""Bridge sampling against closed forms, its error against the spread of many estimates."""

import numpy as np
import pytest
from scipy import stats

from nestedvi.bench.bridge import bridge_sampling

LOG_Z = 3.7


def skewed(x):
    """A product of Gumbel densities, scaled: skewed, so that no Gaussian is it."""
    return stats.gumbel_r.logpdf(x).sum(axis=-1) + LOG_Z


def independent(rng, chains=4, num=1000, dim=3):
    return stats.gumbel_r.rvs(size=(chains, num, dim), random_state=rng)


def test_a_gaussian_is_exact_but_for_its_fit():
    rng = np.random.default_rng(0)
    chains = rng.normal(size=(4, 500, 2)) * [2.0, 0.1] + 5
    found = bridge_sampling(
        rng, lambda x: stats.norm.logpdf(x, 5, [2.0, 0.1]).sum(axis=-1) - 1.5, chains
    )
    assert abs(found.log_Z + 1.5) < 4 * found.stderr < 0.02
    assert found.iterations < 50


@pytest.mark.parametrize(("num", "times"), [(1000, 1), (100, 10)])
def test_the_error_is_that_of_many_estimates(num, times):
    """Also where every draw stands ten times in its chain, and so says a tenth of what it seems."""
    rng = np.random.default_rng(1)
    found = [
        bridge_sampling(rng, skewed, np.repeat(independent(rng, num=num), times, axis=1))
        for _ in range(60)
    ]
    errors = np.array([each.log_Z for each in found]) - LOG_Z
    spread, stated = errors.std(), np.mean([each.stderr for each in found])
    assert abs(errors.mean()) < 4 * spread / np.sqrt(60)
    assert 0.7 < stated / spread < 1.4


def test_the_error_counts_a_slow_chain():
    """Chains of an autoregression with coefficient 0.9: their draws are worth a nineteenth."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(60):
        noise = rng.normal(size=(4, 2000, 2))
        x = np.empty_like(noise)
        x[:, 0] = noise[:, 0]
        for t in range(1, 2000):
            x[:, t] = 0.9 * x[:, t - 1] + np.sqrt(1 - 0.9**2) * noise[:, t]
        # Exponential of a Gaussian: a density that no Gaussian fits, with the chain's memory.
        chains = np.exp(0.5 * x)
        found.append(bridge_sampling(rng, log_normals, chains))
    errors = np.array([each.log_Z for each in found]) - LOG_Z
    spread, stated = errors.std(), np.mean([each.stderr for each in found])
    assert abs(errors.mean()) < 4 * spread / np.sqrt(60)
    assert 0.7 < stated / spread < 1.4
    assert np.mean([each.ess for each in found]) < 4 * 1000 / 4


def log_normals(x):
    with np.errstate(invalid="ignore", divide="ignore"):
        return stats.lognorm.logpdf(x, 0.5).sum(axis=-1) + LOG_Z


def test_what_does_not_converge_is_an_error(monkeypatch):
    monkeypatch.setattr("nestedvi.bench.bridge._ITERATIONS", 1)
    rng = np.random.default_rng(6)
    with pytest.raises(ArithmeticError, match="did not converge"):
        bridge_sampling(rng, skewed, independent(rng))


def test_chains_of_another_density_are_refused():
    rng = np.random.default_rng(7)
    with pytest.raises(ValueError, match="no finite log density"):
        bridge_sampling(rng, lambda x: np.where(x[:, 0] > 0, 0.0, -np.inf), independent(rng))


def test_draws_outside_the_support_count_nothing():
    rng = np.random.default_rng(3)
    chains = rng.uniform(size=(4, 1000, 1))
    found = bridge_sampling(rng, lambda x: np.where((x > 0) & (x < 1), 0.0, np.nan)[:, 0], chains)
    assert abs(found.log_Z) < 4 * found.stderr < 0.2


def test_too_few_draws_are_refused():
    with pytest.raises(ValueError, match="needs more draws"):
        bridge_sampling(np.random.default_rng(0), skewed, np.zeros((1, 10, 5)))
