"""The laid-out step on a mesh of one device is the step without a mesh; several devices are in
tests/virtual_devices.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.train.level_parallel import level_parallel
from nestedvi.train.levels_over_devices import level_parallel_over_devices
from nestedvi.train.orders import initial_population
from tests.helpers.small_training import OBJECTIVE, build


def fill_up(tree, num):
    return jax.tree.map(lambda x: jnp.pad(x, ((0, num), *((0, 0),) * (x.ndim - 1))), tree)


@pytest.fixture
def step(key, x64):
    """A sampler with its population, and both again with two rows that only fill up."""
    sampler = build(key)
    population = initial_population(key, sampler, "level-parallel", 8)
    kernels = eqx.tree_at(lambda s: s.transitions, sampler, fill_up(sampler.transitions, 2))
    return (
        sampler,
        population,
        kernels,
        population._replace(particles=fill_up(population.particles, 2)),
    )


@pytest.mark.slow
def test_rows_that_fill_up_change_nothing(step, key):
    """The same gradient, record and particles; their own gradients are zero."""
    sampler, population, filled, filled_population = step
    alone = eqx.filter_jit(level_parallel)(key, sampler, OBJECTIVE, 8, population)
    with nvi.devices.under(nvi.devices.mesh(levels=1)):
        laid_out = eqx.filter_jit(level_parallel_over_devices)(
            key, filled, OBJECTIVE, 8, filled_population
        )
    assert bool(laid_out.finite.all())
    for a, b in zip(jax.tree.leaves(laid_out), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a[: len(b)] if b.ndim else a, b, rtol=1e-10, atol=1e-12)
    for x in jax.tree.leaves(laid_out.grads.transitions):
        np.testing.assert_array_equal(x[2:], 0.0)


def test_too_few_rows_are_refused(step, key):
    sampler, population, *_ = step
    short = population._replace(particles=jax.tree.map(lambda x: x[:1], population.particles))
    with pytest.raises(ValueError, match="1 rows of levels do not divide"):
        level_parallel_over_devices(key, sampler, OBJECTIVE, 8, short)
