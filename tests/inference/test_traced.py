"""A traced function is what it computes: equal programs for equal functions, never an old one for a
new one, and indices out of range seen before anything is compiled.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import nestedvi as nvi
from nestedvi.inference.problem import make_problem
from nestedvi.inference.traced import check_indices, trace

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


def check(fn, *args, held=()):
    closed = jax.make_jaxpr(fn)(*held, *args)
    check_indices(closed, "function", {"effect": (3,)}, held)


BAD = {
    "data": (lambda z: z[np.array([0, 3])], r"3 into an array of shape \(3,\) \(as 'effect' is\)"),
    "a JAX array": (lambda z: z[jnp.array([0, 3])], r"for 1 of 2 indices, in <lambda> at line"),
    "a number": (lambda z: z[5], r"5 into an array of shape \(3,\)"),
    "from the end": (lambda z: z[np.array([-4])], r"-4 into an array"),
    "of a matrix": (
        lambda z: jnp.outer(z, z)[np.array([1, 1]), np.array([0, 9])],
        r"9 into an array of shape \(3, 3\), along axis 1",
    ),
    "computed": (lambda z: z[2 * jnp.array([0, 2])], r"4 into an array"),
    "compiled": (jax.jit(lambda z: z[np.array([7])]), r"7 into an array"),
    "in a branch": (
        lambda z: jax.lax.cond(z[0] > 0, lambda: z[np.array([4])], lambda: z[:1]),
        r"4 into an array",
    ),
    "in a loop": (
        lambda z: jax.lax.scan(lambda c, i: (c + z[i], None), 0.0, jnp.array([0, 2, 4]))[0],
        r"4 into an array",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_indices_out_of_range_are_errors(case):
    fn, message = BAD[case]
    with pytest.raises(nvi.errors.ModelError, match=message):
        check(fn, jnp.zeros(3))


@pytest.mark.parametrize(
    "fn",
    [
        lambda z: z[np.array([0, -3, 2])],
        lambda z: z[-1],
        lambda z: z[jnp.argmax(z)],  # depends on the particle
        lambda z: z.at[np.array([9])].get(mode="fill"),  # was asked for
        lambda z: jax.ops.segment_sum(z, jnp.array([0, 1, 9]), 2),  # JAX's way to drop a row
        lambda z: jnp.roll(z, 1)[1:],
    ],
)
def test_indices_in_range_and_unknown_ones_pass(fn):
    check(fn, jnp.zeros(3))


def test_numbers_that_a_program_holds_are_known():
    with pytest.raises(nvi.errors.ModelError, match="4 into an array"):
        check(lambda i, z: z[i], jnp.zeros(3), held=(jnp.asarray(4),))


def grouped(group, y):
    with numpyro.plate("groups", 3):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


def stepwise(group, y):
    with numpyro.plate("groups", 3):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))

    def step(carry, row):
        numpyro.sample("y", dist.Normal(effect[row[0]], 1.0), obs=row[1])
        return carry, None

    scan(step, 0.0, (group, y))


@pytest.mark.parametrize("model", [grouped, stepwise])
def test_a_models_groups_must_exist(model):
    """Counted from 1 as in R, the last one does not."""
    y = jnp.zeros(3)
    with pytest.raises(
        nvi.errors.ModelError, match=rf"model {model.__name__} has .* 3 into .*'effect'"
    ):
        make_problem(model, model_args=(jnp.array([1, 2, 3]), y))
    assert make_problem(model, model_args=(jnp.array([0, 1, 2]), y)).dim == 3
