"""Chains of transitions: link by link, both ways, with gradients through the whole."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.moves import chain_of_flows, chain_of_pairs

NOTHING = nvi.kernels.Context(None, None)


def link_of(chain, j):
    return jax.tree.map(lambda x: x[j] if eqx.is_array(x) else x, chain.links)


@pytest.mark.parametrize("make", [chain_of_pairs, chain_of_flows])
def test_a_chain_is_its_links_in_turn(make, key, x64):
    """log q, log r and log q̃ are sums over the links, each scored on its own piece of the way."""
    chain, z_prev = make(jax.random.key(7)), jnp.array([0.3, -0.4])
    z, (starts, stops, auxs) = chain.move(key, z_prev, NOTHING)
    at, total = z_prev, np.zeros(3)
    for j, key_link in enumerate(jax.random.split(key, chain.num)):
        link = link_of(chain, j)
        new, aux = link.move(key_link, at, NOTHING)
        np.testing.assert_allclose([at, new], [starts[j], stops[j]], rtol=1e-12)
        total += np.asarray(link.score(new, at, aux, NOTHING))
        at = new
    np.testing.assert_allclose(z, at, rtol=1e-12)
    np.testing.assert_allclose(
        chain.score(z, z_prev, (starts, stops, auxs), NOTHING), total, rtol=1e-10, atol=1e-12
    )
    assert np.abs(total[0]) > 1e-3


def test_a_chain_runs_backwards_link_by_link(key):
    """The last link goes first, and what is kept is the way in its forward order, ready to be
    scored.
    """
    chain, z = chain_of_pairs(jax.random.key(7)), jnp.array([0.3, -0.4])
    z_prev, (starts, stops, _) = chain.reverse_move(key, z, NOTHING)
    assert jnp.array_equal(starts[0], z_prev) and jnp.array_equal(stops[-1], z)
    assert jnp.array_equal(starts[1:], stops[:-1])


def test_gradients_flow_through_a_whole_chain(key, x64):
    """The last particle depends on the first link's parameters: against a finite difference."""
    chain = chain_of_pairs(jax.random.key(7))

    @jax.jit
    def end(t):
        bias = chain.links.forward.out_bias.at[0, 0].add(t)
        moved = eqx.tree_at(lambda c: c.links.forward.out_bias, chain, bias)
        moved = eqx.tree_at(
            lambda c: c.links.forward.out_weight, moved, chain.links.forward.out_weight + 0.1
        )
        return jnp.sum(moved.move(key, jnp.array([0.3, -0.4]), NOTHING)[0])

    slope = jax.grad(end)(0.0)
    assert abs(float(slope)) > 0.5
    np.testing.assert_allclose(slope, (end(1e-5) - end(-1e-5)) / 2e-5, rtol=1e-6)


def test_a_chain_of_discrete_links(key):
    """Particles without a floating-point leaf still get scores in the working precision."""

    def make(k):
        return nvi.Transition(
            nvi.kernels.CategoricalKernel(jax.random.normal(k, (3, 3))),
            nvi.kernels.CategoricalKernel(jnp.zeros((3, 3))),
        )

    chain = nvi.kernels.Chain(nvi.stack(key, make, 4))
    z, aux = chain.move(key, jnp.array(1), NOTHING)
    scores = chain.score(z, jnp.array(1), aux, NOTHING)
    np.testing.assert_allclose(scores.log_r, 4 * math.log(1 / 3), rtol=1e-6)
    assert float(scores.log_q) == float(scores.log_q_score) < 0
    assert scores.log_q.dtype == jnp.float32


def test_one_transition_is_no_chain():
    """Arrays without a leading axis were not stacked."""
    kernel = nvi.kernels.GaussianKernel(*[jnp.array(0.5)] * 3)
    with pytest.raises(ValueError, match=r"Chain\(…\) holds transitions that are stacked"):
        nvi.kernels.Chain(nvi.Transition(kernel, kernel))
