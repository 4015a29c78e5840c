"""Heuristic factors: exact messages and mixtures against sums over all that may follow."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.special import logsumexp

from nestedvi.paper.hmm.heuristics import BackwardRecursion, MixtureHeuristic
from tests.helpers.small_hmm import (
    MU,
    SEQUENCES,
    TAU,
    XS,
    M,
    eta,
    exact_recursion,
    latent,
    log_chain,
    log_emissions,
    silenced,
)

K = len(XS)


def test_recursion_with_the_chain_itself_is_exact(x64):
    """With T = A and c = 0 messages are p(x_{k+1:K} | z_k, η) for every k and state, and the first
    one is p(x | η).
    """
    found = exact_recursion().messages(eta(), jnp.asarray(XS))
    for k, z in itertools.product(range(1, K + 1), range(M)):
        futures = itertools.product(range(M), repeat=K - k)
        expected = logsumexp(
            [log_chain(zs, z) + log_emissions(zs, XS[k:], MU, TAU) for zs in futures]
        )
        np.testing.assert_allclose(
            exact_recursion().log_psi(found.later[k - 1], latent(z)),
            expected,
            rtol=1e-10,
            atol=1e-12,
        )
    expected = logsumexp([log_chain(zs) + log_emissions(zs, XS, MU, TAU) for zs in SEQUENCES])
    np.testing.assert_allclose(found.first, expected, rtol=1e-10)


@pytest.mark.parametrize("kind", ["hand-coded", "silent network", "uniform recursion"])
def test_mixtures_ignore_the_chain(kind, x64):
    """ψ_k = Π_{l>k} Σ_m N(x_l; η_m)/M, hand-coded, from a network that says nothing, or from a
    recursion with T uniform.
    """
    heuristic = {
        "hand-coded": lambda: MixtureHeuristic(),
        "silent network": lambda: silenced(MixtureHeuristic.neural(key=jax.random.key(0), width=4)),
        "uniform recursion": lambda: silenced(BackwardRecursion(M, key=jax.random.key(0), width=4)),
    }[kind]()
    found = heuristic.messages(eta(), jnp.asarray(XS))
    points = np.log(scipy.stats.norm.pdf(XS[:, None], MU, TAU**-0.5).mean(axis=1))
    np.testing.assert_allclose(found.first, points.sum(), rtol=1e-10)
    for k, z in itertools.product(range(1, K + 1), range(M)):
        log_psi = heuristic.log_psi(found.later[k - 1], latent(z))
        np.testing.assert_allclose(log_psi, points[k:].sum(), rtol=1e-10, atol=1e-12)


def test_a_network_gives_the_mixture_its_weights(x64):
    """ψ(x_l) = Σ_m N(x_l; η_m) ψ(m | η, x_l) with weights that add up to one: between the smallest
    and the largest component.
    """
    heuristic = MixtureHeuristic.neural(key=jax.random.key(5), width=4)
    heuristic = eqx.tree_at(lambda h: h.out.weight, heuristic, 300 * heuristic.out.weight)
    found = heuristic.messages(eta(), jnp.asarray(XS))
    points = -np.diff(np.concatenate([[found.first], found.later]))
    parts = scipy.stats.norm.logpdf(XS[:, None], MU, TAU**-0.5)
    assert (points > parts.min(axis=1)).all() and (points < parts.max(axis=1)).all()
    assert np.abs(points - np.log(np.exp(parts).mean(axis=1))).max() > 0.01
