"""Products of kernels: dependence within a move, the order of the parts, and which part goes which
gradient's way.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi

CONTEXT = nvi.kernels.Context(None, None)
LOGITS = np.array([[0.0, 1.0], [0.5, -0.5]])
MEANS = np.array([-1.0, 2.0])


class Mean(eqx.Module):
    means: jax.Array

    def __call__(self, z, context):
        return dist.Normal(self.means[z["a"]], 0.5)


class State(eqx.Module):
    weight: jax.Array

    def __call__(self, z, context):
        return dist.Bernoulli(logits=self.weight * z["z"])


def a_then_z():
    mean = nvi.DistributionKernel(Mean(jnp.asarray(MEANS)), reparameterised=True)
    return nvi.ProductKernel(
        {"a": nvi.kernels.Field("a", nvi.kernels.CategoricalKernel(jnp.asarray(LOGITS))), "z": mean}
    )


def z_then_a():
    shift = nvi.kernels.GaussianKernel(jnp.array(0.5), jnp.array(0.1), jnp.array(0.0))
    return nvi.ProductKernel(
        {
            "z": nvi.kernels.Field("z", shift),
            "a": nvi.DistributionKernel(State(jnp.array(1.5)), reparameterised=False),
        }
    )


def particle(a, z):
    return {"a": jnp.array(a), "z": jnp.array(z)}


def log_normal(z, loc, scale):
    return -0.5 * ((z - loc) / scale) ** 2 - math.log(scale) - 0.5 * math.log(2 * math.pi)


def log_state(a_new, a):
    return LOGITS[a, a_new] - math.log(np.exp(LOGITS[a]).sum())


def log_bernoulli(a, logit):
    return -math.log1p(math.exp(-logit if a else logit))


@pytest.mark.parametrize("a_new", [0, 1])
def test_a_later_part_sees_the_new_value(a_new, x64):
    """log q = log q(a' | a) + log q(z' | a'), with the new a' in the second factor; the score term
    is the first factor.
    """
    new, old, kernel = particle(a_new, 0.3), particle(1 - a_new, -5.0), a_then_z()
    discrete = log_state(a_new, 1 - a_new)
    np.testing.assert_allclose(
        kernel.log_prob(new, old, CONTEXT),
        discrete + log_normal(0.3, MEANS[a_new], 0.5),
        rtol=1e-12,
    )
    np.testing.assert_allclose(kernel.log_prob_score(new, old, CONTEXT), discrete, rtol=1e-12)


@pytest.mark.parametrize("a_new", [0, 1])
def test_parts_keep_the_order_given(a_new, x64):
    """z before a: a' depends on the new z' = 0.3, not on the old 4.0, although "a" comes first in
    the alphabet.
    """
    new, old, kernel = particle(a_new, 0.3), particle(0, 4.0), z_then_a()
    discrete = log_bernoulli(a_new, 1.5 * 0.3)
    np.testing.assert_allclose(
        kernel.log_prob(new, old, CONTEXT), discrete + log_normal(0.3, 2.1, 1.0), rtol=1e-12
    )
    np.testing.assert_allclose(kernel.log_prob_score(new, old, CONTEXT), discrete, rtol=1e-12)


@pytest.mark.parametrize("make", [a_then_z, z_then_a])
def test_the_order_survives_tree_operations(make, key, x64):
    """Optimisers rebuild a kernel leaf by leaf; a dictionary would come back sorted."""
    kernel, old = make(), particle(1, 0.4)
    rebuilt = jax.tree.map(lambda x: x, kernel)
    again = jax.tree.unflatten(jax.tree.structure(kernel), jax.tree.leaves(kernel))
    for copy in (rebuilt, again):
        assert copy.names == kernel.names
        drawn = copy.sample(key, old, CONTEXT)
        assert jax.tree.all(jax.tree.map(jnp.array_equal, drawn, kernel.sample(key, old, CONTEXT)))
        assert float(copy.log_prob(drawn, old, CONTEXT)) == float(
            kernel.log_prob(drawn, old, CONTEXT)
        )


def test_each_part_goes_its_own_way(key, x64):
    """z' = μ[a'] + 0.5 ε: its gradient reaches the mean of the state that was drawn, and nothing
    reaches the state's logits.
    """
    kernel = a_then_z()
    assert not kernel.reparameterised
    gradient = eqx.filter_grad(lambda k: k.sample(key, particle(0, 0.0), CONTEXT)["z"])(kernel)
    drawn = int(kernel.sample(key, particle(0, 0.0), CONTEXT)["a"])
    np.testing.assert_array_equal(gradient.parts[1].network.means, np.eye(2)[drawn])
    assert not gradient.parts[0].kernel.logits.any()


def test_a_product_of_reparameterised_parts_is_reparameterised():
    part = nvi.kernels.Field(
        "z", nvi.kernels.GaussianKernel(jnp.array(0.5), jnp.array(0.1), jnp.array(0.0))
    )
    assert nvi.ProductKernel({"z": part}).reparameterised


def test_a_part_without_a_score_term_is_found(key):
    """The product must not hide the part that lacks one."""

    class Silent(nvi.AbstractKernel):
        @property
        def reparameterised(self):
            return False

        def sample(self, key, z, context):
            return z["a"]

        def log_prob(self, z_new, z, context):
            return jnp.zeros(())

    with pytest.raises(nvi.errors.MissingScoreError, match="Silent"):
        nvi.ProductKernel({"a": Silent()}).log_prob_score(
            particle(0, 0.0), particle(0, 0.0), CONTEXT
        )


def test_an_empty_product_is_refused():
    with pytest.raises(ValueError, match="at least one part"):
        nvi.ProductKernel({})


def test_append_scores_the_new_entry_only(x64):
    """q(z_{1:3} | z_{1:2}) = q(z_3 | z_2): earlier entries are where they were."""
    kernel = nvi.kernels.Append(
        nvi.kernels.GaussianKernel(jnp.array(0.5), jnp.array(0.1), jnp.array(0.0))
    )
    z = jnp.array([9.0, 0.4])
    new = kernel.sample(jax.random.key(0), z, CONTEXT)
    assert jnp.array_equal(new[:2], z)
    np.testing.assert_allclose(
        kernel.log_prob(new, z, CONTEXT), log_normal(float(new[2]), 0.3, 1.0), rtol=1e-12
    )


@pytest.mark.parametrize("flipped", [False, True])
def test_joint_of_a_density_and_a_kernel(flipped, key, x64):
    """p(a) k(b | a) on pairs in either order; log q̃ counts the discrete factor alone."""
    first = nvi.densities.Numpyro(dist.Categorical(probs=jnp.array([0.2, 0.8])))
    kernel = nvi.DistributionKernel(
        lambda a, context: dist.Normal(jnp.asarray(MEANS)[a], 0.5), reparameterised=True
    )
    joint = nvi.kernels.Joint(first, kernel, flipped=flipped)
    pair = (jnp.array(0.3), jnp.array(1)) if flipped else (jnp.array(1), jnp.array(0.3))
    np.testing.assert_allclose(
        joint.log_gamma(pair), math.log(0.8) + log_normal(0.3, 2.0, 0.5), rtol=1e-9
    )
    np.testing.assert_allclose(joint.log_score(pair), math.log(0.8), rtol=1e-9)
    assert not joint.reparameterised and float(joint.log_Z) == 0.0
    drawn = jax.vmap(joint.sample)(jax.random.split(key, 4000))
    a, b = drawn[::-1] if flipped else drawn
    assert abs(float(jnp.mean(a)) - 0.8) < 5 * math.sqrt(0.16 / 4000)
    residual = (b - jnp.asarray(MEANS)[a]) / 0.5
    assert abs(float(jnp.mean(residual))) < 5 / math.sqrt(4000)
    assert abs(float(jnp.mean(residual**2)) - 1) < 5 * math.sqrt(2 / 4000)
