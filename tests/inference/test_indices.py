"""Indices out of range in traced programs, at any depth."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import nestedvi as nvi
from nestedvi.inference.indices import check_indices
from nestedvi.inference.problem import make_problem

Z = jnp.zeros(3)


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
        check(fn, Z)


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
    check(fn, Z)


def test_numbers_that_a_program_holds_are_known():
    with pytest.raises(nvi.errors.ModelError, match="4 into an array"):
        check(lambda i, z: z[i], Z, held=(jnp.asarray(4),))


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
