"""Errors of a user's function in a sentence, with the line of the user's file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.densities.failures import explain


def failure(fn, *args):
    with pytest.raises(Exception) as caught:
        fn(*args)
    return explain(caught.value)


TRACED = {
    "if": lambda z: -z if z > 0 else z,
    "float": lambda z: float(z),
    "int": lambda z: [1, 2][z.astype(int)],
    "numpy": lambda z: np.sin(z),
    "mask": lambda z: jnp.ones(3)[jnp.ones(3) > z],
}


@pytest.mark.parametrize("kind", TRACED)
def test_values_that_are_only_traced_say_how_to_write_it(kind):
    said = failure(jax.make_jaxpr(TRACED[kind]), jnp.zeros(()))
    assert said.startswith("it needs the value of something that is only traced (test_failures.py,")
    assert "jnp.where(condition, a, b)" in said


def test_other_errors_keep_their_first_line():
    def fails():
        raise RuntimeError("first.\nsecond")

    line = fails.__code__.co_firstlineno + 1
    assert failure(fails) == f"RuntimeError: first (test_failures.py, line {line})"
    assert explain(KeyError()) == "KeyError"
