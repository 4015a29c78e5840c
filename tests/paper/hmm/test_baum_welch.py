"""Baum-Welch: where it ends against closed forms, and the likelihood it reports against a sum over
all sequences of states.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from nestedvi.paper.hmm.baum_welch import ExpectationMaximisation
from tests.helpers.small_hmm import (
    MODEL,
    SEQUENCES,
    XS,
    M,
    cluster_statistics,
    log_chain,
    log_emissions,
)

APART = np.array([-50.2, -49.0, 40.3, 41.1, -50.5])
STATES = np.array([0, 0, 1, 1, 0])


@jax.jit
def fit(xs):
    return encoder().fit(MODEL, xs)


def encoder():
    return ExpectationMaximisation(MODEL, key=jax.random.key(1), width=4, num_steps=3)


def test_groups_that_are_far_apart_are_found(x64):
    """Assignments are certain there, so the best fit is the posterior's in closed form: the mode
    of μ and the mean of τ given the groups.
    """
    fits = fit(jnp.asarray(APART))
    best = int(np.argmax(np.where(np.all(fits.used, axis=1), fits.log_x, -np.inf)))
    number, mean, _ = cluster_statistics(STATES, APART, M)
    mu = (number * mean + MODEL.nu * MODEL.mu) / (number + MODEL.nu)
    around = np.array([np.sum((APART[m == STATES] - mu[m]) ** 2) for m in range(M)])
    order = np.argsort(fits.eta.mu[best])
    np.testing.assert_allclose(fits.eta.mu[best][order], mu, rtol=1e-10)
    tau = (MODEL.alpha + 0.5 * number) / (MODEL.beta + 0.5 * around)
    np.testing.assert_allclose(fits.eta.tau[best][order], tau, rtol=1e-10)
    np.testing.assert_allclose(fits.statistics.number[best][order], number, rtol=1e-10)


def test_its_likelihood_is_a_sum_over_the_sequences_of_the_clusters_in_use(x64):
    fits = fit(jnp.asarray(XS))
    for used, mu, tau, log_x in zip(fits.used, *fits.eta, fits.log_x, strict=True):
        allowed = [zs for zs in SEQUENCES if all(used[z] for z in zs)]
        log_p = [log_chain(zs) + log_emissions(zs, XS, mu, tau) for zs in allowed]
        np.testing.assert_allclose(log_x, logsumexp(log_p), rtol=1e-10)
    assert {tuple(map(bool, used)) for used in fits.used} == {(True, True), (True, False)}


def test_the_proposal_has_a_part_a_start_and_last_the_prior(x64):
    """No start has less than e⁻⁶ of the best one's weight."""
    xs = jnp.asarray(XS)
    fits = fit(xs)
    proposal = encoder()(MODEL, xs, fits)
    assert proposal.alpha.shape == (len(fits.log_x) + 1, M) and proposal.symmetric
    assert proposal.logits[:-1].max() == 0 and proposal.logits[:-1].min() >= -6
    for name in ("alpha", "beta", "mu", "nu"):
        np.testing.assert_allclose(getattr(proposal, name)[-1], getattr(MODEL, name))
