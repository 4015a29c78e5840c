"""A step's gradient: levels whose own is not finite are named."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.trained_samplers import (
    densities_sampler,
    gradient,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_non_finite_levels_are_named(key):
    """A NaN at one level is flagged there, and not at the others."""
    sampler = densities_sampler()
    spoilt = eqx.tree_at(
        lambda s: s.transitions.transition.reverse.shift,
        sampler,
        replace_fn=lambda x: x.at[1].set(jnp.nan),
    )
    finite = np.asarray(gradient(key, spoilt, nvi.Objective(), 8).finite)
    assert finite[0] and finite[1] and not finite[2]
