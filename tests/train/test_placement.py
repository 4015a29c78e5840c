"""Which arrays have a row a level, and how rows are filled up and taken away again; what needs
several devices is in tests/virtual_devices.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nestedvi as nvi
from nestedvi.train.placement import NO_LEVELS, Placement, level_axes_of_optimiser, no_levels

PARAMS = {"kernels": jnp.ones((3, 2)), "path": jnp.ones(3)}
AXES = {"kernels": 0, "path": NO_LEVELS}


@pytest.mark.parametrize(
    "optimiser",
    [
        optax.adam(1e-2),
        optax.chain(optax.clip_by_global_norm(1.0), optax.lamb(1e-2)),
        optax.adafactor(1e-2, min_dim_size_to_factor=1),
        optax.MultiSteps(optax.sgd(1e-2, momentum=0.9), 2),
    ],
    ids=["adam", "lamb", "adafactor", "multi-steps"],
)
def test_the_level_axis_is_the_one_that_grows(optimiser):
    """Also where a path's parameter has as many entries as there are rows."""
    axes = level_axes_of_optimiser(optimiser.init, PARAMS, AXES)
    state = optimiser.init(PARAMS)
    grown = optimiser.init({**PARAMS, "kernels": jnp.ones((5, 2))})
    assert jax.tree.structure(axes) == jax.tree.structure(state)
    with_rows = 0
    for axis, x, y in zip(*map(jax.tree.leaves, (axes, state, grown)), strict=True):
        expected = NO_LEVELS if x.shape == y.shape else x.shape.index(3)
        assert axis == expected
        with_rows += axis != NO_LEVELS
    assert with_rows


def test_what_is_laid_out_comes_back_whole():
    placement = Placement(nvi.devices.mesh(levels=1), None, 3)
    placed = placement.place(PARAMS, AXES)
    assert placed["kernels"].sharding.spec[0] == "levels"
    assert "levels" not in placed["path"].sharding.spec
    for name, x in placement.whole(placed, AXES).items():
        np.testing.assert_array_equal(x, PARAMS[name])


def test_nothing_has_rows_unless_it_is_said():
    assert no_levels(PARAMS) == {"kernels": NO_LEVELS, "path": NO_LEVELS}
