"""A traced function is what it computes: equal programs for equal functions, and never an old one
for a new one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.inference.traced import trace

Z = jnp.array([0.5, -1.0])
HELD = {"shift": np.array([1.0, 2.0]), "power": 2}


def log_density(z):
    return -jnp.sum(jnp.abs(z - HELD["shift"]) ** HELD["power"])


@pytest.fixture(autouse=True)
def as_it_was():
    HELD.update(shift=np.array([1.0, 2.0]), power=2)


def test_it_computes_the_same_and_so_do_its_derivatives():
    traced = trace(log_density, Z)
    np.testing.assert_allclose(traced(Z), log_density(Z))
    many = jnp.stack([Z, 2 * Z])
    np.testing.assert_allclose(
        jax.vmap(jax.grad(traced))(many), jax.vmap(jax.grad(log_density))(many)
    )
    tree = trace(lambda z: {"a": z[0], "b": (z, 1.0)}, Z)(Z)
    assert float(tree["a"]) == 0.5 and tree["b"][1] == 1.0


def test_other_arrays_are_other_leaves_of_one_program():
    before = trace(log_density, Z)
    HELD["shift"] = np.array([3.0, 2.0])
    after = trace(log_density, Z)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    np.testing.assert_allclose([before(Z), after(Z)], [-9.25, -15.25])


def test_an_array_that_is_changed_in_place_changes_nothing_traced():
    traced = trace(log_density, Z)
    HELD["shift"][:] = 100.0
    np.testing.assert_allclose(traced(Z), -9.25)


def test_other_code_and_other_numbers_are_other_programs():
    before = trace(log_density, Z)
    HELD["power"] = 4
    assert jax.tree.structure(trace(log_density, Z)) != jax.tree.structure(before)
    assert jax.tree.structure(trace(lambda z: -jnp.sum(z), Z)) != jax.tree.structure(before)


def test_arrays_inside_of_compiled_functions_count():
    """They are in the inner program, and its text does not show them."""
    one, two, same = (
        trace(jax.jit(lambda z, c=c: jnp.sum(z * c)), Z)
        for c in (np.ones(2), np.full(2, 3.0), np.ones(2))
    )
    assert jax.tree.structure(one) == jax.tree.structure(same) != jax.tree.structure(two)
    np.testing.assert_allclose([one(Z), two(Z)], [-0.5, -1.5])


def test_numbers_to_hold_are_leaves_of_one_program():
    """Written into the program they would be compiled anew; a Python number and one of NumPy are
    the same.
    """

    def fn(held, z):
        return held[0] * jnp.sum(z)

    two, three = trace(fn, Z, hold=(2.0,)), trace(fn, Z, hold=(np.float64(3.0),))
    assert jax.tree.structure(two) == jax.tree.structure(three)
    np.testing.assert_allclose([two(Z), three(Z)], [-1.0, -1.5])
