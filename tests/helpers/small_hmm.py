"""A Gaussian HMM of two clusters whose densities are done by hand, and whose evidence is a sum over
all sequences of states.
"""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from scipy.special import gammaln, logsumexp

import nestedvi as nvi
from nestedvi.paper.hmm.heuristics import BackwardRecursion
from nestedvi.paper.hmm.model import Clusters, GaussianHMM

M = 2
MODEL = GaussianHMM(num_clusters=M, alpha=3.0, beta=2.0, mu=0.4, nu=0.5, stay=0.7)
LONGER = np.array([0.3, 1.9, 1.2, -1.0, -0.4, 0.9])
XS = LONGER[:5]
SEQUENCES = list(itertools.product(range(M), repeat=len(XS)))
MU, TAU = np.array([-0.7, 1.1]), np.array([0.8, 2.5])


def eta():
    """η = (MU, TAU)."""
    return Clusters(jnp.asarray(MU), jnp.asarray(TAU))


def latent(state, row=0):
    """A particle of that η in a state."""
    return nvi.paths.Latent(eta(), jnp.asarray(state), jnp.asarray(row))


def log_chain(zs, start=None):
    """log p(z) by hand; with `start` the probability of going on from that state."""
    first = (
        -math.log(M) if start is None else (math.log(0.7 if zs[0] == start else 0.3) if zs else 0.0)
    )
    return first + sum(math.log(0.7 if a == b else 0.3) for a, b in itertools.pairwise(zs))


def log_emissions(zs, xs, mu, tau):
    """log p(x | z, η) by hand."""
    return sum(
        scipy.stats.norm.logpdf(x, mu[z], tau[z] ** -0.5) for z, x in zip(zs, xs, strict=True)
    )


def log_prior(mu, tau):
    """log p(η) by hand."""
    gammas = scipy.stats.gamma.logpdf(tau, MODEL.alpha, scale=1 / MODEL.beta)
    return (gammas + scipy.stats.norm.logpdf(mu, MODEL.mu, (MODEL.nu * tau) ** -0.5)).sum()


def log_cluster_evidence(x):
    """log ∫ NormalGamma(μ, τ) Π N(x_i; μ, 1/τ), the conjugate closed form."""
    n = len(x)
    mean = x.mean() if n else 0.0
    alpha, nu = MODEL.alpha + n / 2, MODEL.nu + n
    beta = (
        MODEL.beta
        + 0.5 * np.sum((x - mean) ** 2)
        + 0.5 * MODEL.nu * n / nu * (mean - MODEL.mu) ** 2
    )
    out = (
        gammaln(alpha)
        - gammaln(MODEL.alpha)
        + MODEL.alpha * math.log(MODEL.beta)
        - alpha * math.log(beta)
    )
    return out + 0.5 * math.log(MODEL.nu / nu) - 0.5 * n * math.log(2 * math.pi)


def log_evidence(xs):
    """log p(x_{1:K}), the clusters' parameters integrated out for every sequence of states."""
    sequences = itertools.product(range(M), repeat=len(xs))
    return logsumexp(
        [
            log_chain(zs) + sum(log_cluster_evidence(xs[np.array(zs) == m]) for m in range(M))
            for zs in sequences
        ]
    )


def silenced(heuristic):
    """A heuristic whose network says nothing."""
    zeros = jnp.zeros_like(heuristic.out.weight), jnp.zeros_like(heuristic.out.bias)
    return eqx.tree_at(lambda h: (h.out.weight, h.out.bias), heuristic, zeros)


def recursion(transitions):
    """A backward recursion with those transitions and a network that says nothing."""
    heuristic = silenced(BackwardRecursion(M, key=jax.random.key(0), width=4))
    return eqx.tree_at(lambda h: h.log_T, heuristic, jnp.log(jnp.asarray(transitions)))


def exact_recursion():
    """The recursion with the model's own transitions."""
    return recursion(np.exp(MODEL.log_transitions))


def cluster_statistics(states, xs, num):
    """Number, mean and sum of squared deviations of each cluster's observations, one cluster at a
    time.
    """
    groups = [xs[states == m] for m in range(num)]
    means = np.array([g.mean() if g.size else 0.0 for g in groups])
    spreads = np.array([np.sum((g - m) ** 2) for g, m in zip(groups, means, strict=True)])
    return np.array([g.size for g in groups], float), means, spreads


def assert_mean_is_one(ratio, most=0.05):
    """Within four standard errors, which are at most `most`: errors that say nothing would let
    anything pass.
    """
    error = ratio.std(ddof=1) / math.sqrt(ratio.size)
    assert error < most
    assert abs(ratio.mean() - 1) < 4 * error
