"""Levels in a Python loop have the gradients that they have in a scan."""

import jax
import jax.numpy as jnp
import pytest

import nestedvi as nvi
from tests.helpers.trained_samplers import (
    ALL,
    SAMPLERS,
    assert_trees,
    gradient,
    untied,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NVIR*", "state space"])
def test_unequal_levels_have_the_same_gradient(name, key, x64):
    """A loop over a tuple of transitions against the scan, leaf by leaf."""
    sampler, objective = SAMPLERS[name](), nvi.Objective(learn=ALL)
    scan, loop = (
        gradient(key, sampler, objective, 12),
        gradient(key, untied(sampler), objective, 12),
    )
    assert_trees(loop.info, scan.info)
    assert_trees(loop.grads.initial, scan.grads.initial)
    assert_trees(loop.grads.path, scan.grads.path)
    restacked = jax.tree.map(lambda *xs: jnp.stack(xs), *loop.grads.transitions)
    assert_trees(restacked, scan.grads.transitions.transition)
