"""Any bijection as a flow: log det, backwards, learning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi

bijections = pytest.importorskip("flowjax.bijections")


def sampler():
    """N(0, 1) is carried by x ↦ 2x + 1 to N(1, 2²) exactly."""
    flow = nvi.stack(
        jax.random.key(0),
        lambda k: nvi.kernels.BijectionFlow(bijections.Affine(jnp.ones(2), jnp.full(2, 2.0))),
        1,
    )
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 1.0), nvi.DiagonalNormal(jnp.ones(2), 2.0)
    return nvi.NestedSampler(
        base, nvi.Annealing(base, target, nvi.LinearSchedule(2)), nvi.Stacked(flow)
    )


def test_an_exact_flow_has_constant_weights(key):
    result = nvi.run(key, sampler(), 50)
    np.testing.assert_allclose(result.particles.log_w, 0.0, atol=1e-5)


@pytest.mark.slow
def test_bijections_run_backwards(key):
    """With exact samples of the target the upper bound exists, and an exact flow makes it tight."""
    quality = nvi.evaluate(key, sampler(), num_particles=5, num_batches=4)
    assert quality.upper_bound == pytest.approx(0.0, abs=1e-5)


@pytest.mark.slow
def test_gradients_reach_the_bijection(key):
    found = nvi.train.orders.gradient(key, sampler(), nvi.Objective(learn="forward"), 8)
    assert bool(found.finite.all()) and any(x is not None for x in jax.tree.leaves(found.grads))
