"""What users pass to a model: tables, scalars, sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.densities.model_arguments import Arguments, readings

pd = pytest.importorskip("pandas")

FRAME = pd.DataFrame({"x": [1.0, 2.0], "group": [0, 1]})
WORDS = pd.DataFrame({"x": [1.0, 2.0], "who": ["a", "b"]})


def test_arrays_are_copied_and_others_are_left_alone():
    x = np.zeros(2)
    (found,) = readings((x, 3, None), {"name": "text"})
    x[:] = 7.0
    assert found.args[0].tolist() == [0.0, 0.0]
    assert found.args[1:] == (3, None) and found.kwargs == {"name": "text"}


def test_a_series_is_an_array_with_missing_entries_as_nan():
    found = next(readings((pd.Series([1.5, 2.5]),), {"n": pd.Series([1, None], dtype="Int64")}))
    assert isinstance(found.args[0], np.ndarray) and found.args[0].tolist() == [1.5, 2.5]
    np.testing.assert_array_equal(found.kwargs["n"], [1.0, np.nan])


def test_a_frame_is_a_matrix_or_columns_or_itself():
    matrix, columns, itself = readings((FRAME,), {})
    assert matrix.args[0].tolist() == [[1.0, 0.0], [2.0, 1.0]]
    assert columns.args[0]["group"].dtype.kind == "i" and columns.args[0]["x"].tolist() == [1, 2]
    assert itself.args[0] is FRAME
    columns, itself = readings((WORDS,), {})
    assert columns.args[0]["x"].tolist() == [1.0, 2.0] and itself.args[0] is WORDS


MIXED = Arguments((np.ones(2), 2.5, True), {"n": 3, "s": np.float64(0.5), "name": "a"})


def test_scalars_are_numbers_without_a_shape():
    assert MIXED.places(whole=True) == (1, "n", "s")
    assert MIXED.places(whole=False) == (1, "s")
    assert MIXED.at((1, "n")) == (2.5, 3)
    changed = MIXED.put((1, "n"), (7.0, 8))
    assert changed.args[1] == 7.0 and changed.kwargs["n"] == 8 and MIXED.kwargs["n"] == 3


def test_what_a_function_must_know_is_no_data():
    """A number in arithmetic may be anything; one that shapes or branches is part of the
    program.
    """
    assert MIXED.scalars(lambda a: a.args[1] * a.kwargs["n"] * a.kwargs["s"]) == (1, "n", "s")
    assert MIXED.scalars(lambda a: jnp.zeros(a.kwargs["n"]) * a.args[1]) == (1, "s")
    assert MIXED.scalars(lambda a: 1.0 if a.args[1] > 0 else jax.numpy.zeros(())) == ()
