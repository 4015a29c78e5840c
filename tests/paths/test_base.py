"""What all paths share: one level out of a stack, masks of fields, and which paths are prepared."""

import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.paper.hmm.linear_gaussian import LinearGaussian, particle_filter
from nestedvi.paths.base import at_level, needs_table, trainable_fields
from tests.helpers.small_hmm import LONGER, MODEL, exact_recursion
from tests.helpers.small_paths import annealing


def test_one_level_out_of_a_stack():
    """Arrays give their entry or slice; what is no array is the same at every level."""
    stack = {"a": jnp.arange(6.0).reshape(3, 2), "name": "x", "number": 4}
    assert at_level(stack, 1)["a"].tolist() == [2, 3]
    assert at_level(stack, slice(1, None))["a"].shape == (2, 2)
    assert (at_level(stack, 1)["name"], at_level(stack, 1)["number"]) == ("x", 4)


def test_a_mask_selects_the_named_fields_and_no_others():
    path = annealing(nvi.LearnedSchedule(4))
    for names in ((), ("schedule",), ("base", "schedule")):
        mask = trainable_fields(path, *names)
        assert jax.tree.structure(mask) == jax.tree.structure(path)
        chosen = {at[0].name for at, on in jax.tree_util.tree_leaves_with_path(mask) if on}
        assert chosen == set(names)


def test_only_a_path_with_global_variables_needs_a_table():
    xs = jnp.asarray(LONGER, jnp.float32)
    assert needs_table(nvi.StateSpace(MODEL, xs, exact_recursion(), prior=MODEL.log_prior))
    assert not needs_table(particle_filter(LinearGaussian(), xs).path)
    assert not needs_table(annealing(nvi.LinearSchedule(3)))


def test_both_roles_of_a_density_on_one_space_are_the_density(x64):
    """γ_k of level k and of level k+1, with no factor left out."""
    path = annealing(nvi.LinearSchedule(3))
    theta, stats = at_level(path.thetas(), 1), path.stats(jnp.array([0.4, -1.3]))
    expected = path.log_density(theta, stats)
    np.testing.assert_allclose(path.log_gamma(theta, stats, None), expected)
    np.testing.assert_allclose(path.log_gamma_prev(theta, stats), expected)
    assert path.precomputed().num_levels == path.num_levels == 3
