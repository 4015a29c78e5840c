"""Rows through one program in pieces of one size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.pieces import in_pieces, piece_size, through_pieces


@pytest.mark.parametrize("num", [1, 4, 7, 8])
def test_pieces_are_of_one_size_and_hold_every_row_once(num):
    rows = np.arange(2.0 * num).reshape(num, 2)
    pieces = in_pieces(rows, 4)
    assert {len(piece) for piece in pieces} == {4}
    np.testing.assert_array_equal(np.concatenate(pieces)[:num], rows)


def test_any_number_of_rows_goes_through_one_program():
    programs = []

    @jax.jit
    def double(z):
        programs.append(z.shape)
        return {"twice": 2 * z, "sum": jnp.sum(z, axis=1)}

    for num in (1, 5, 8, 11):
        rows = np.arange(3.0 * num, dtype=np.float32).reshape(num, 3)
        got = through_pieces(double, rows, 4)
        np.testing.assert_array_equal(got["twice"], 2 * rows)
        np.testing.assert_array_equal(got["sum"], rows.sum(axis=1))
    assert programs == [(4, 3)]


def test_an_accelerator_gets_large_pieces(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert piece_size(64) == 64
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert piece_size(64) == 4096
    assert piece_size(10_000) == 10_000
