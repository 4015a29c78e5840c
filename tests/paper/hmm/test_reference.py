"""The reference: η in coordinates without bounds, and log Z against a sum over all sequences of
states.
"""

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi.paper.hmm.model import Clusters, GaussianHMM
from nestedvi.paper.hmm.proposals import NormalGammas
from nestedvi.paper.hmm.reference import LogPrecision, by_mean
from tests.helpers.small_hmm import (
    MODEL,
    MU,
    TAU,
)


def test_prior_in_unbounded_coordinates_integrates_to_one(x64):
    """∫ p(μ, log τ) = 1 on a grid: the Jacobian of τ = e^{log τ} is there."""
    prior = LogPrecision(
        NormalGammas.prior(GaussianHMM(num_clusters=1, alpha=3.0, beta=2.0, mu=0.4, nu=0.5))
    )
    mu, log_tau = np.linspace(-60, 60, 2401), np.linspace(-7, 4, 221)
    grid = jnp.stack([x.ravel() for x in jnp.meshgrid(mu, log_tau)], axis=-1)
    mass = (
        jnp.exp(jax.vmap(prior.log_gamma)(grid)).sum() * (mu[1] - mu[0]) * (log_tau[1] - log_tau[0])
    )
    np.testing.assert_allclose(mass, 1.0, atol=1e-4)


def test_prior_coordinates_carry_the_jacobian_of_every_cluster(x64):
    """log p(μ, log τ) = log p(μ, τ) + log |det ∂η/∂(μ, log τ)|, and naming clusters by their means
    changes neither.
    """
    prior = LogPrecision(NormalGammas.prior(MODEL))
    z = jnp.concatenate([jnp.asarray(MU[::-1]), jnp.log(jnp.asarray(TAU[::-1]))])
    jacobian = jax.jacobian(lambda z: jnp.concatenate(prior.clusters(z)))(z)
    expected = (
        MODEL.log_prior(Clusters(jnp.asarray(MU[::-1]), jnp.asarray(TAU[::-1])))
        + jnp.linalg.slogdet(jacobian)[1]
    )
    np.testing.assert_allclose(prior.log_gamma(z), expected, rtol=1e-12)
    ordered = by_mean(z)
    np.testing.assert_allclose(ordered, np.concatenate([MU, np.log(TAU)]), rtol=1e-12)
    np.testing.assert_allclose(prior.log_gamma(ordered), expected, rtol=1e-12)
