"""Sums over paths of states, by enumeration."""

import itertools

import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import log_density
from scipy import special, stats

from nestedvi.bench.posteriordb.hidden_markov import forward, hmm_example, low_dim_gauss_mix


def test_the_forward_pass_sums_over_all_paths(x64):
    rng = np.random.default_rng(5)
    seen, transition = rng.normal(size=(4, 2)), rng.dirichlet([1, 1], size=2)
    paths = [
        np.log(0.5)
        + sum(seen[t, k] for t, k in enumerate(path))
        + sum(np.log(transition[j, k]) for j, k in itertools.pairwise(path))
        for path in itertools.product((0, 1), repeat=4)
    ]
    found = forward(jnp.asarray(seen), jnp.log(jnp.asarray(transition)))
    np.testing.assert_allclose(found, special.logsumexp(paths))


def test_with_equal_rows_it_is_a_mixture(x64):
    """A chain that forgets is independent draws: the second model, whose weights are the rows."""
    y, rows = np.array([2.0, 9.0, 4.0]), np.array([0.3, 0.7])
    values = {"theta1": rows, "theta2": rows, "mu": np.array([3.0, 8.0])}
    log_prior = stats.norm.logpdf(3, 3, 1) + stats.norm.logpdf(8, 10, 1)
    log_prior -= np.log(stats.norm.sf(0, 3, 1) * stats.norm.cdf(7 / np.sqrt(2)))
    parts = stats.norm.logpdf(y[:, None], [3.0, 8.0], 1)
    first = special.logsumexp(parts[0] + np.log(0.5))
    later = special.logsumexp(parts[1:] + np.log(rows), axis=1).sum()
    found = log_density(hmm_example, (y,), {}, values)[0]
    np.testing.assert_allclose(found, log_prior + first + later, atol=2e-5)


def test_the_mixtures_prior_is_normalised(x64):
    values = {"mu": np.array([-1.0, 1.5]), "sigma": np.array([0.5, 2.0]), "theta": 0.4}
    log_prior = stats.norm.logpdf([-1, 1.5], 0, 2).sum() + np.log(2)
    log_prior += stats.halfnorm.logpdf([0.5, 2], 0, 2).sum() + stats.beta.logpdf(0.4, 5, 5)
    found = log_density(low_dim_gauss_mix, (np.zeros(0),), {}, values)[0]
    np.testing.assert_allclose(found, log_prior)
