"""Orders of execution: the same gradients from levels in a scan and from levels side by side."""

import jax
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.train import orders
from nestedvi.train.orders import initial_population
from tests.helpers.trained_samplers import (
    ALL,
    SAMPLERS,
    assert_trees,
    gradient,
    nvi_sampler,
    untied,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "divergence"),
    [
        *((name, "reverse-kl") for name in SAMPLERS),
        ("NVIR*", "forward-kl"),
        ("flows", "forward-kl"),
        ("state space", "forward-kl"),
    ],
)
def test_two_phase_is_sequential(name, divergence, key, x64):
    """Every leaf's gradient, the report, and that there is something to compare."""
    sampler, objective = SAMPLERS[name](), nvi.Objective(divergence, learn=ALL)
    one, two = (gradient(key, sampler, objective, 12, order=s) for s in ("sequential", "two-phase"))
    assert_trees(two.grads, one.grads)
    assert_trees(two.info, one.info)
    assert bool(one.finite.all()) and bool(two.finite.all())
    largest = [float(np.abs(x).max()) for x in jax.tree.leaves(one.grads)]
    assert min(largest) > 1e-6, largest


def test_orders_that_would_change_nothing_are_refused(key):
    with pytest.raises(ValueError, match=r"A bound runs through all levels at once: 'two-phase'"):
        orders.gradient(key, nvi_sampler(), nvi.Objective(kind="bound"), 4, order="two-phase")
    with pytest.raises(ValueError, match=r"unequal kinds run one by one: 'two-phase'"):
        orders.gradient(key, untied(nvi_sampler()), nvi.Objective(), 4, order="two-phase")


@pytest.mark.parametrize("call", ["gradient", "population"])
def test_unknown_order(call, key):
    with pytest.raises(nvi.errors.UnknownNameError, match="two-phase"):
        if call == "gradient":
            orders.gradient(key, nvi_sampler(), nvi.Objective(), 4, order="two_phase")
        else:
            initial_population(key, nvi_sampler(), "two_phase", 4)


def test_a_level_parallel_step_needs_a_population(key):
    with pytest.raises(ValueError, match="initial_population"):
        orders.gradient(key, nvi_sampler(), nvi.Objective(), 4, order="level-parallel")
