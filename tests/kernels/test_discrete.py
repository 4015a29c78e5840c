"""Kernels on finite spaces and from NumPyro distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi

NOTHING = nvi.kernels.Context(None, None)


def test_a_discrete_transition_scores_both_ways(x64):
    """log q, log r and log q̃ of one jump, from the two tables."""
    forward, reverse = np.array([[0.3, 0.7], [0.9, 0.1]]), np.array([[0.5, 0.5], [0.2, 0.8]])
    transition = nvi.Transition(
        *(
            nvi.kernels.CategoricalKernel(jnp.log(jnp.asarray(table)))
            for table in (forward, reverse)
        )
    )
    scores = transition.score(jnp.array(0), jnp.array(1), None, NOTHING)
    np.testing.assert_allclose(scores, np.log([0.9, 0.5, 0.9]), rtol=1e-12)
    assert not transition.reparameterised


def poisson(z, context):
    return dist.Poisson(jnp.exp(0.6 * z))


def test_a_distribution_declared_reparameterised_must_be(key):
    kernel = nvi.DistributionKernel(poisson, reparameterised=True)
    with pytest.raises(
        ValueError, match=r"Poisson has no pathwise gradient.*reparameterised=False"
    ):
        kernel.sample(key, jnp.array(0.4), NOTHING)


def test_score_and_pathwise_gradients_exclude_each_other(key):
    """A discrete draw carries no gradient and is scored; a normal one carries it and is not."""

    def normal(z, context):
        return dist.Normal(0.6 * z, 1.0)

    def slope(kernel):
        return jax.grad(lambda z: jnp.sum(kernel.sample(key, z, NOTHING)))(jnp.array(0.4))

    pathwise = nvi.DistributionKernel(normal, reparameterised=True)
    scored = nvi.DistributionKernel(normal, reparameterised=False)
    z, z_new = jnp.array(0.4), jnp.array(1.0)
    np.testing.assert_allclose(slope(pathwise), 0.6, rtol=1e-6)
    assert float(slope(scored)) == 0.0 == float(pathwise.log_prob_score(z_new, z, NOTHING))
    expected = dist.Normal(0.24, 1.0).log_prob(1.0)
    np.testing.assert_allclose(scored.log_prob_score(z_new, z, NOTHING), expected, rtol=1e-6)


def test_a_batch_of_distributions_is_one_particle(key):
    """Log probabilities of independent entries add up."""
    kernel = nvi.DistributionKernel(poisson, reparameterised=False)
    z, z_new = jnp.array([0.4, -1.0]), jnp.array([2, 0])
    expected = dist.Poisson(jnp.exp(0.6 * z)).log_prob(z_new).sum()
    assert kernel.log_prob(z_new, z, NOTHING).shape == ()
    np.testing.assert_allclose(kernel.log_prob(z_new, z, NOTHING), expected, rtol=1e-6)
