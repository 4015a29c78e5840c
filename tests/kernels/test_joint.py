"""Joint densities of pairs: both orders, what is drawn, what is scored."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestedvi as nvi
from tests.helpers.finite import Table


def test_flipped_pairs_agree_on_the_order(key):
    """Both joints score a pair (z, x) that either of them drew."""
    prior, data = Table(jnp.zeros(2)), Table(jnp.zeros(3))
    left = nvi.kernels.Joint(
        prior, nvi.DistributionKernel(lambda z, c: dist.Categorical(probs=jnp.ones(3) / 3), False)
    )
    right = nvi.kernels.Joint(
        data,
        nvi.DistributionKernel(lambda x, c: dist.Categorical(probs=jnp.ones(2) / 2), False),
        flipped=True,
    )
    for z, x in (left.sample(key), right.sample(key)):
        assert 0 <= z < 2 and 0 <= x < 3
        log_left = left.log_gamma((z, x)) - left.log_Z
        log_right = right.log_gamma((z, x)) - right.log_Z
        np.testing.assert_allclose([log_left, log_right], -np.log(6), rtol=1e-6)


def test_a_completed_point_is_a_draw_of_the_joint(key):
    joint = nvi.kernels.Joint(
        nvi.DiagonalNormal(0.0, 1.0),
        nvi.kernels.GaussianKernel(jnp.ones(1), jnp.zeros(1), jnp.zeros(1)),
        flipped=True,
    )
    point = jnp.array([3.0])
    b, a = joint.complete(key, point)
    assert a is point and b.shape == (1,) and b != a


@pytest.mark.parametrize("flipped", [False, True])
def test_a_joint_sums_to_its_first_parts_normaliser(flipped, x64):
    """Σ p(a) k(b | a) over all pairs is Σ p(a), and all of it was drawn without a gradient."""
    first = Table(jnp.array([0.3, -1.0]))
    kernel = nvi.kernels.CategoricalKernel(jnp.array([[0.0, 1.0], [2.0, -0.5]]))
    joint = nvi.kernels.Joint(first, kernel, flipped=flipped)
    pairs = [tuple(map(jnp.array, pair)) for pair in itertools.product(range(2), repeat=2)]
    log_p = np.array([joint.log_gamma(pair) for pair in pairs])
    np.testing.assert_allclose(np.log(np.exp(log_p).sum()), joint.log_Z, rtol=1e-12)
    scores = [joint.log_score(pair) for pair in pairs]
    np.testing.assert_allclose(scores, log_p - joint.log_Z, rtol=1e-12)


def test_only_what_was_drawn_without_a_gradient_is_scored(x64):
    """A normal first part is not; the discrete second part is."""
    kernel = nvi.DistributionKernel(lambda a, _: dist.Bernoulli(logits=a[0]), False)
    joint = nvi.kernels.Joint(nvi.DiagonalNormal(0.0, 1.0), kernel)
    assert not joint.reparameterised
    score = joint.log_score((jnp.array([0.7]), jnp.array(1)))
    np.testing.assert_allclose(score, -np.log1p(np.exp(-0.7)), rtol=1e-12)
