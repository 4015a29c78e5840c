"""Moves of η: their density by hand, what they keep invariant, and what they remember."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.special import logsumexp

import nestedvi as nvi
from nestedvi.paper.hmm.heuristics import MixtureHeuristic
from nestedvi.paper.hmm.model import Clusters
from nestedvi.paper.hmm.proposals import NormalGammas
from nestedvi.paper.hmm.refresh import ClusterRefresh
from nestedvi.paper.hmm.statistics import Statistics
from tests.helpers.small_hmm import (
    LONGER,
    MODEL,
    M,
    cluster_statistics,
    log_chain,
    log_emissions,
    log_prior,
    recursion,
)

K = len(LONGER)
ZS = (0, 1, 1, 0, 0, 1)
T = np.array([[0.8, 0.2], [0.35, 0.65]])
HEURISTICS = {
    "none": nvi.paths.NoHeuristic,
    "mixture": MixtureHeuristic,
    "recursion": lambda: recursion(T),
}


def log_psi(name, k, mu, tau):
    """log ψ_k(z_k, η) by hand for the sequence ZS: sums over all that may follow."""
    if name == "none" or k == K:
        return 0.0
    if name == "mixture":
        return np.log(scipy.stats.norm.pdf(LONGER[k:, None], mu, tau**-0.5).mean(axis=1)).sum()
    terms = []
    for zs in itertools.product(range(M), repeat=K - k):
        first = 1 / M if k == 0 else T[ZS[k - 1], zs[0]]
        terms.append(math.log(first) + sum(math.log(T[a, b]) for a, b in itertools.pairwise(zs)))
        terms[-1] += log_emissions(zs, LONGER[k:], mu, tau)
    return logsumexp(terms)


def path_of(heuristic=None, dtype=None):
    return nvi.StateSpace(MODEL, jnp.asarray(LONGER, dtype), heuristic, prior=MODEL.log_prior)


def remembered(refresh, k, z):
    return refresh.remember(
        refresh.start(z), jnp.asarray(ZS[:k], jnp.int32), jnp.asarray(LONGER[:k])
    )


def latent(mu, tau, k):
    return nvi.paths.Latent(
        Clusters(jnp.asarray(mu), jnp.asarray(tau)), jnp.asarray(ZS[max(k - 1, 0)]), jnp.asarray(0)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", HEURISTICS)
def test_the_moves_density_is_the_target_in_unbounded_coordinates(name, x64):
    """log γ_k − log p(η) − log p(x_{1:k}, z_{1:k} | η) − log ψ_k(z_k, η) − Σ log τ is one number
    for every η, at every k.
    """
    refresh, path = (
        ClusterRefresh(MODEL, steps=2, scale=0.8),
        path_of(HEURISTICS[name]()),
    )
    rng = np.random.default_rng(1)
    etas = [(rng.normal(0.3, 1.5, M), rng.gamma(2.0, 1.0, M)) for _ in range(4)]
    for k in range(0, K + 1, 2):
        rest = []
        for mu, tau in etas:
            z = latent(mu, tau, k)
            expected = (
                log_prior(mu, tau)
                + log_emissions(ZS[:k], LONGER[:k], mu, tau)
                + log_psi(name, k, mu, tau)
            )
            # The chain's own probability does not depend on η; that of the states is part of γ_k
            # all the same.
            expected += (log_chain(ZS[:k]) if k else 0.0) + np.log(tau).sum()
            rest.append(
                float(refresh.log_gamma(z.eta, z, remembered(refresh, k, z), jnp.asarray(k), path))
                - expected
            )
        np.testing.assert_allclose(np.diff(rest), 0, atol=1e-10)


def test_moves_keep_the_posterior(x64):
    """At k = K the target is a NormalGamma for each cluster: draws from it that are moved have the
    same moments.

    Differences of moved and unmoved draws have mean zero within four standard errors, and most
    draws have moved.
    """
    refresh = ClusterRefresh(MODEL, steps=5, scale=0.8)
    path = path_of(recursion(T))
    number, mean, spread = cluster_statistics(np.array(ZS), LONGER, M)
    nu = MODEL.nu + number
    beta = MODEL.beta + 0.5 * spread + 0.5 * MODEL.nu * number / nu * (mean - MODEL.mu) ** 2
    alpha, mu = MODEL.alpha + 0.5 * number, (MODEL.nu * MODEL.mu + number * mean) / nu
    posterior = NormalGammas(jnp.zeros(1), *(jnp.asarray(x)[None] for x in (alpha, beta, mu, nu)))

    def one(key):
        key_draw, key_move = jax.random.split(key)
        eta = posterior.sample(key_draw)
        z = nvi.paths.Latent(eta, jnp.asarray(ZS[-1]), jnp.asarray(0))
        return eta, *refresh.move(key_move, z, remembered(refresh, K, z), jnp.asarray(K), path)

    many, num = jax.jit(jax.vmap(one)), 20_000
    parts = [many(keys) for keys in jax.random.split(jax.random.key(3), (10, num // 10))]
    before, after, accepted = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    assert 0.2 < accepted.mean() < 0.9 and (before.mu != after.mu).mean() > 0.5
    for moment in (
        lambda e: e.mu,
        lambda e: e.mu**2,
        lambda e: np.log(e.tau),
        lambda e: e.tau,
        lambda e: e.tau * e.mu,
    ):
        change = moment(after) - moment(before)
        error = change.std(axis=0, ddof=1) / math.sqrt(num)
        np.testing.assert_array_less(np.abs(change.mean(axis=0)), 4 * error)


@pytest.mark.slow
def test_moves_do_not_depend_on_the_chains_beside_them():
    """20000 chains at once move as they do a thousand at a time."""
    refresh, path = (
        ClusterRefresh(MODEL, steps=2, scale=0.8),
        path_of(dtype=jnp.float32),
    )

    def one(key):
        z = latent(jnp.zeros(M), jnp.ones(M), K)
        return refresh.move(key, z, remembered(refresh, K, z), jnp.asarray(K), path)[0]

    many, keys = jax.jit(jax.vmap(one)), jax.random.split(jax.random.key(4), (20, 1000))
    parts = np.concatenate([many(part).mu for part in keys])
    # Vector and scalar code round differently, which may turn a decision here and there.
    assert np.isclose(many(keys.reshape(-1)).mu, parts, atol=1e-4).mean() > 0.999


def test_memory_in_parts_is_memory_at_once(x64):
    """Statistics of two or three parts are those of the whole, with clusters that get nothing
    first, later, or at all.
    """
    refresh = ClusterRefresh(MODEL, steps=2, scale=0.8)
    states, xs = (
        np.array([2, 0, 2, 2, 0, 1, 1, 0]),
        np.array([5.0, -31.2, 4.1, 6.6, -30.0, 90.5, 88.0, -29.9]),
    )
    empty = Statistics(*(jnp.zeros(4) for _ in range(3)))

    def after(*cuts):
        memory = empty
        for part in np.split(np.arange(len(xs)), cuts):
            memory = refresh.remember(memory, jnp.asarray(states[part]), jnp.asarray(xs[part]))
        return memory

    for cuts in ((), (1,), (5,), (3, 6)):
        for found, wanted in zip(after(*cuts), cluster_statistics(states, xs, 4), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-11)
