"""Adaptive tempered SMC: log Z against closed forms, with and without symmetries, and where the
likelihood vanishes.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import nestedvi as nvi
from nestedvi.densities.folded import Folded
from nestedvi.smc.from_prior import tempered_smc

PRIOR = np.array([2.0, 1.0, 0.5])
COVARIANCE = np.array([[0.2, 0.1, 0.0], [0.1, 0.3, -0.05], [0.0, -0.05, 0.1]])
POINTS = np.array([[1.0, -0.5, 0.3], [0.0, 2.0, -1.0]])
PRECISION = np.linalg.inv(COVARIANCE)
RUNS = 6


def log_gaussian(y, z):
    """log N(y; z, COVARIANCE)."""
    gap = y - z
    constant = -0.5 * np.linalg.slogdet(2 * math.pi * COVARIANCE)[1]
    return constant - 0.5 * gap @ jnp.asarray(PRECISION, gap.dtype) @ gap


class LogGaussian(eqx.Module):
    """log N(y; z, COVARIANCE) as a likelihood of z: one program for every y."""

    y: jax.Array

    def __call__(self, z):
        return log_gaussian(self.y, z)


def runs_of(prior, log_likelihood, seed, num=RUNS, num_moves=5):
    keys = jax.random.split(jax.random.key(seed), num)
    return [
        tempered_smc(key, prior, log_likelihood, num_particles=500, num_moves=num_moves)
        for key in keys
    ]


@pytest.mark.parametrize("y", POINTS)
def test_gaussian_posteriors(y):
    """log N(y; 0, prior + noise) and the posterior's mean, over several runs, up to β = 1."""
    prior = nvi.DiagonalNormal(jnp.zeros(3), jnp.asarray(PRIOR))
    runs = runs_of(prior, LogGaussian(jnp.asarray(y)), 1)
    exact = scipy.stats.multivariate_normal.logpdf(y, np.zeros(3), np.diag(PRIOR**2) + COVARIANCE)
    log_Z = np.array([run.log_Z_hat for run in runs])
    error = log_Z.std(ddof=1) / math.sqrt(RUNS)
    assert error < 0.1 and abs(log_Z.mean() - exact) < 4 * error
    posterior = np.linalg.inv(np.diag(PRIOR**-2.0) + PRECISION)
    means = np.stack([np.asarray(run.z).mean(axis=0) for run in runs])
    error = means.std(axis=0, ddof=1) / math.sqrt(RUNS)
    assert (np.abs(means.mean(axis=0) - y @ PRECISION @ posterior) < 5 * error).all()
    assert all(run.beta == 1 and run.num_levels > 1 for run in runs)


def test_the_same_key_gives_the_same_run():
    prior = nvi.DiagonalNormal(jnp.zeros(3), jnp.asarray(PRIOR))
    first, again = (runs_of(prior, LogGaussian(jnp.asarray(POINTS[0])), 1, 1)[0] for _ in range(2))
    np.testing.assert_array_equal(first.z, again.z)
    assert first.log_Z_hat == again.log_Z_hat


MEANS, NOISE, WIDE = np.array([-3.0, 4.0]), 0.3, 3.0


def log_mixture(z):
    """Two coordinates, each of which may be the one near either mean."""

    def log_p(z):
        return jnp.sum(jax.scipy.stats.norm.logpdf(z, jnp.asarray(MEANS), NOISE))

    return jnp.logaddexp(log_p(z), log_p(z[::-1]))


@pytest.mark.parametrize("folded", [False, True], ids=["as they are", "sorted"])
def test_folding_leaves_the_evidence(folded):
    """Two symmetric modes: log Z = log 2 + Σ log N(m_i; 0, wide + noise), with both modes or with
    one of them for both.
    """
    prior = nvi.DiagonalNormal(jnp.zeros(2), WIDE)
    if folded:
        prior = Folded(prior, jnp.sort, 2)

    runs = runs_of(prior, log_mixture, 2)
    exact = math.log(2) + scipy.stats.norm.logpdf(MEANS, 0, math.hypot(WIDE, NOISE)).sum()
    log_Z = np.array([run.log_Z_hat for run in runs])
    error = log_Z.std(ddof=1) / math.sqrt(RUNS)
    assert error < 0.1
    assert abs(log_Z.mean() - exact) < 4 * error
    z = np.stack([np.asarray(run.z) for run in runs])
    in_order = (z[..., 0] < z[..., 1]).mean()
    assert in_order == 1 if folded else 0.2 < in_order < 0.8


def test_folded_moves_leave_the_target_invariant():
    """Two sorted Gumbels: E[max] = log 2 + Euler's constant, though their covariance is not that of
    exchangeable coordinates.
    """
    prior = Folded(nvi.densities.Numpyro(dist.Gumbel(jnp.zeros(2), 1.0)), jnp.sort, 2)

    runs = runs_of(prior, lambda z: jnp.zeros(()), 3, 8, 50)
    means = np.array([np.asarray(run.z[:, 1]).mean() for run in runs])
    np.testing.assert_allclose([run.log_Z_hat for run in runs], 0.0, atol=1e-5)
    assert abs(means.mean() - math.log(2) - np.euler_gamma) < 4 * means.std(ddof=1) / 8**0.5


@pytest.mark.parametrize("nothing", [-jnp.inf, jnp.nan])
def test_a_likelihood_of_zero_is_a_weight_of_zero(nothing):
    """L = 1 on a half-line and zero (or NaN) elsewhere: Z = 1/2, and no particle ends where it is
    zero.
    """

    def log_L(z):
        return jnp.where(z[0] > 0, 0.0, nothing)

    prior = nvi.DiagonalNormal(jnp.zeros(1), 1.0)
    run = tempered_smc(
        jax.random.key(3), prior, log_L, num_particles=1000, num_moves=2, ess_share=0.8
    )
    assert abs(math.exp(run.log_Z_hat) - 0.5) < 4 * 0.5 / math.sqrt(1000)
    assert (np.asarray(run.z) > 0).all() and run.beta == 1
