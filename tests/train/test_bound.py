"""A bound's gradient is the derivative of −log Ẑ."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.trained_samplers import (
    ALL,
    gradient,
    nvi_sampler,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_bound_matches_finite_differences(key, x64):
    """−log Ẑ with the same key, through every level."""
    sampler, objective = nvi_sampler(), nvi.Objective(kind="bound", learn=ALL)
    got = gradient(key, sampler, objective, 8)
    diff, fixed = eqx.partition(sampler, objective.trainable(sampler))
    value = jax.jit(lambda d: -nvi.run(key, eqx.combine(d, fixed), 8).log_Z_hat)
    direction = jax.tree.map(
        lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), diff
    )

    def step(h):
        return jax.tree.map(lambda x, d: x + h * d, diff, direction)

    numeric = (value(step(1e-5)) - value(step(-1e-5))) / 2e-5
    slope = sum(
        jnp.vdot(g, d)
        for g, d in zip(jax.tree.leaves(got.grads), jax.tree.leaves(direction), strict=True)
    )
    np.testing.assert_allclose(slope, numeric, rtol=1e-6)
    np.testing.assert_allclose(got.info.log_Z_hat, -value(diff), rtol=1e-12)
