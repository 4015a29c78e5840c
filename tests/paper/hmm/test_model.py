"""The Gaussian HMM: everything against sums over all M^K sequences of states, where the clusters
integrate in closed form.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from nestedvi.paper.hmm.model import GaussianHMM, simulate
from tests.helpers.small_hmm import (
    MODEL,
    MU,
    SEQUENCES,
    TAU,
    XS,
    M,
    eta,
    latent,
    log_chain,
    log_emissions,
    log_prior,
)

USED = [None, (True, False), (False, True)]


@pytest.mark.parametrize("used", USED)
def test_likelihood_and_smoothing_are_sums_over_state_sequences(used, x64):
    """log p(x | η) and p(z_k | x, η); with `used` over the sequences that visit those clusters
    alone.
    """
    flags = True if used is None else jnp.asarray(used)
    allowed = [zs for zs in SEQUENCES if used is None or all(used[z] for z in zs)]
    log_p = np.array([log_chain(zs) + log_emissions(zs, XS, MU, TAU) for zs in allowed])
    found = jax.jit(
        lambda eta, xs: (MODEL.log_likelihood(eta, xs, flags), MODEL.smooth(eta, xs, flags))
    )
    likelihood, smooth = found(eta(), jnp.asarray(XS))
    np.testing.assert_allclose(likelihood, logsumexp(log_p), rtol=1e-12)
    weights = np.exp(log_p - logsumexp(log_p))
    expected = sum(w * np.eye(M)[list(zs)] for w, zs in zip(weights, allowed, strict=True))
    np.testing.assert_allclose(smooth, expected, rtol=1e-10, atol=1e-12)


def test_densities_of_the_model_are_those_of_its_parts(x64):
    """log p(η) by scipy, a uniform start, and a chain whose rows add up to one."""
    np.testing.assert_allclose(MODEL.log_prior(eta()), log_prior(MU, TAU), rtol=1e-12)
    np.testing.assert_allclose(MODEL.log_initial(latent(0)), -math.log(M), rtol=1e-12)
    np.testing.assert_allclose(
        GaussianHMM().log_transition(latent(2), latent(1)),
        math.log(1 / 30),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        jnp.exp(GaussianHMM().log_transitions).sum(axis=1), np.ones(4), rtol=1e-6
    )
    found = MODEL.log_observation(jnp.asarray(0.2), latent(1))
    np.testing.assert_allclose(found, log_emissions([1], [0.2], MU, TAU), rtol=1e-12)


def test_simulated_series_follow_the_chain():
    """Means of x given (z, η) are η's, neighbours agree with probability `stay`, and states are
    uniform.
    """
    draw = jax.jit(jax.vmap(lambda key: MODEL.simulate(key, 20)))
    clusters, zs, xs = (
        jax.tree.map(np.asarray, x) for x in draw(jax.random.split(jax.random.key(8), 400))
    )
    same = zs[:, 1:] == zs[:, :-1]
    assert abs(same.mean() - 0.7) < 4 * math.sqrt(0.7 * 0.3 / same.size)
    assert abs(zs[:, 0].mean() - 0.5) < 4 * 0.5 / math.sqrt(len(zs))
    residual = (xs - np.take_along_axis(clusters.mu, zs, 1)) * np.sqrt(
        np.take_along_axis(clusters.tau, zs, 1)
    )
    assert abs(residual.mean()) < 4 / math.sqrt(residual.size)
    assert abs((residual**2).mean() - 1) < 4 * math.sqrt(2 / residual.size)


@pytest.mark.slow
def test_more_instances_begin_with_the_same_ones():
    """A larger test set holds the smaller one; parts have instances of their own."""
    few, more, other = (
        np.asarray(simulate(0, part, num, 4)[2])
        for part, num in (("test", 2), ("test", 3), ("train", 2))
    )
    np.testing.assert_array_equal(few, more[:2])
    assert not np.isclose(few, other).any()
