"""Proposals for clusters and states: closed forms by scipy, and draws that follow them."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.special import logsumexp

import nestedvi as nvi
from nestedvi.paper.hmm.model import Clusters
from nestedvi.paper.hmm.proposals import ClusterKernel, NormalGammas
from tests.helpers.small_hmm import (
    MU,
    TAU,
    latent,
    silenced,
)


@pytest.mark.parametrize("guided", [False, True])
def test_cluster_kernel_starts_from_the_observation(guided, x64):
    """With a silent network q(z_k) ∝ N(x_k; η) and, guided, times ψ_k of its own row; a network
    sees z_{k-1}, not at k = 1.
    """
    kernel = ClusterKernel(key=jax.random.key(2), width=4, guided=guided)
    message = np.array([[5.0, -5.0], [0.3, 1.4]])

    def log_probs(kernel, k, state):
        theta = nvi.paths.Step(jnp.asarray(k), jnp.asarray(0.4), jnp.asarray(message))
        return np.asarray(kernel.log_probs(latent(state, row=1), nvi.kernels.Context(theta, None)))

    logits = scipy.stats.norm.logpdf(0.4, MU, TAU**-0.5) + (message[1] if guided else 0.0)
    np.testing.assert_allclose(
        log_probs(silenced(kernel), 2, 0), logits - logsumexp(logits), rtol=1e-10
    )
    np.testing.assert_array_equal(log_probs(kernel, 1, 0), log_probs(kernel, 1, 1))
    assert np.abs(log_probs(kernel, 2, 0) - log_probs(kernel, 2, 1)).max() > 1e-5


PARTS = {
    "alpha": np.array([[6.0, 9.0, 7.0], [5.0, 8.0, 12.0]]),
    "beta": np.array([[3.0, 2.0, 5.0], [4.0, 6.0, 3.0]]),
    "mu": np.array([[-2.0, 0.0, 3.0], [-1.0, 1.0, 2.0]]),
    "nu": np.array([[2.0, 4.0, 1.0], [3.0, 2.0, 5.0]]),
}
SHARE = np.array([0.3, 0.7])


def normal_gammas(symmetric):
    return NormalGammas(
        jnp.log(jnp.asarray(SHARE)) + 1.5,
        **{k: jnp.asarray(v) for k, v in PARTS.items()},
        symmetric=symmetric,
    )


def log_plain(mu, tau):
    """log Σ_r w_r Π_m NormalGamma by scipy."""
    a, b, m, n = PARTS.values()
    log_p = scipy.stats.gamma.logpdf(tau, a, scale=1 / b) + scipy.stats.norm.logpdf(
        mu, m, (n * tau) ** -0.5
    )
    return logsumexp(np.log(SHARE) + log_p.sum(axis=1))


def test_normal_gammas_have_their_closed_form(x64):
    """The plain density is the mixture; the symmetric one is its mean over all names, whatever the
    names of the point.
    """
    mu, tau = np.array([0.5, -1.5, 2.2]), np.array([1.3, 2.0, 0.7])
    np.testing.assert_allclose(
        normal_gammas(False).log_gamma(Clusters(mu, tau)), log_plain(mu, tau), rtol=1e-12
    )
    orders = [list(order) for order in itertools.permutations(range(3))]
    mean = logsumexp([log_plain(mu[o], tau[o]) for o in orders]) - math.log(6)
    for order in orders:
        found = normal_gammas(True).log_gamma(Clusters(mu[order], tau[order]))
        np.testing.assert_allclose(found, mean, rtol=1e-12)
    assert abs(log_plain(mu, tau) - mean) > 0.1


@pytest.mark.parametrize("symmetric", [False, True])
def test_normal_gamma_draws_have_their_moments_and_density(symmetric, x64):
    """E τ = α/β, E τ² = α(α+1)/β², E μ = μ and Var μ = β/(ν(α-1)) around it; symmetric draws have
    their mean over clusters.

    And E_p[p_1/p] = 1 for the first part p_1, which p covers: what is sampled is what is scored,
    and it is normalised.
    """
    density = normal_gammas(symmetric)
    part = NormalGammas(jnp.zeros(1), **{k: jnp.asarray(v[:1]) for k, v in PARTS.items()})

    def one(key):
        z = density.sample(key)
        return z, jnp.exp(part.log_gamma(z) - density.log_gamma(z))

    z, ratio = jax.tree.map(
        np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(9), 20_000))
    )
    a, b, m, n = PARTS.values()
    expected = [SHARE @ x for x in (a / b, a * (a + 1) / b**2, m, m**2 + b / (n * (a - 1)))]
    for found, wanted in zip((z.tau, z.tau**2, z.mu, z.mu**2), expected, strict=True):
        wanted = np.full(3, wanted.mean()) if symmetric else wanted
        error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
        np.testing.assert_array_less(np.abs(found.mean(axis=0) - wanted), 4.5 * error)
    assert abs(ratio.mean() - 1) < 4 * ratio.std(ddof=1) / math.sqrt(ratio.size)
