"""Checks of arguments: what passes, what comes back, and the words of what does not pass. The
functions that use them are in test_bad_inputs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.arguments import (
    as_floats,
    check_arrays,
    check_folder,
    check_key,
    check_kind,
    check_number,
    check_whole,
    shown,
)


@pytest.mark.parametrize("value", [3, np.int64(3), np.array(3), jnp.array(3)])
def test_whole_numbers_of_any_library_are_python_integers(value):
    assert type(check_whole("n", value)) is int and check_whole("n", value) == 3


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2.6, r"n is a whole number; got 2.6 \(float\). Write n=3."),
        ("x", r"n is a whole number; got 'x' \(str\).$"),
        (float("inf"), r"got inf \(float\).$"),
        (np.ones(2), r"got an array of shape \(2,\) and dtype float64.$"),
        (np.True_, r"n is a whole number"),
    ],
)
def test_what_is_no_whole_number(value, said):
    with pytest.raises(TypeError, match=said):
        check_whole("n", value)


def test_a_number_that_is_too_small_says_why():
    with pytest.raises(ValueError, match=r"n is 2 or more; got 1. Two are a pair.$"):
        check_whole("n", 1, least=2, why="Two are a pair.")


@pytest.mark.parametrize(
    ("bounds", "good", "bad", "said"),
    [
        ({"above": 0, "below": 1}, 0.5, 1, "between 0 and 1; got 1"),
        ({"above": 0}, 1e9, 0.0, "above 0; got 0"),
        ({"least": 0}, 0, -1e-3, "of at least 0; got -0.001"),
        ({"below": 2}, -1e9, 2, "below 2; got 2"),
        ({"above": 0}, np.float32(1), float("nan"), "above 0; got nan"),
    ],
)
def test_numbers_within_bounds(bounds, good, bad, said):
    assert check_number("x", good, **bounds) == good
    with pytest.raises(ValueError, match=f"x is a number {said}"):
        check_number("x", bad, **bounds)


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0)])
def test_both_kinds_of_keys_pass(key):
    check_key(key)
    jax.vmap(lambda k: check_key(k) or jnp.zeros(()))(jnp.stack([key, key]))


def test_folders_may_be_left_out(tmp_path):
    for folder in (None, "here", tmp_path):
        check_folder("out", folder)


def test_arrays_of_numbers_pass_and_options_are_left_alone():
    check_arrays({"x": [np.ones(2), jnp.ones(2, bool)], "link": "logit", "none": None})
    with pytest.raises(TypeError, match=r"x must hold numbers; got an array of times"):
        check_arrays({"x": {"deep": np.zeros(2, "m8[s]")}})


def test_kinds_and_floats():
    check_kind("x", 1, int, "a number")
    with pytest.raises(TypeError, match=r"x is a number; got 'a' \(str\)"):
        check_kind("x", "a", int, "a number")
    assert as_floats("x", [1, 2]).dtype == jnp.float32


def test_long_values_are_cut():
    assert len(shown("a" * 1000)) < 80
