"""Many particles through one compiled program: rows in pieces of one size.

A program is compiled for one number of particles. Rows go through it in pieces of that number, the
last one filled up, so that any number of them needs no other program. It refuses to know what is
computed.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from nestedvi.host import is_on_host

__all__ = ["in_pieces", "piece_size", "through_pieces"]

# An accelerator takes as long for this many particles as for a few.
_ACCELERATOR = 4096


def piece_size(on_cpu: int) -> int:
    """The number of rows in a piece: `on_cpu` where caches are small, many on an accelerator,
    where every call waits.
    """
    return on_cpu if is_on_host() else max(on_cpu, _ACCELERATOR)


def in_pieces(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Rows in pieces of `size`, the last one filled up with copies of its last row."""
    pieces = [rows[i : i + size] for i in range(0, len(rows), size)]
    short = size - len(pieces[-1])
    if short:
        pieces[-1] = np.concatenate([pieces[-1], np.repeat(pieces[-1][-1:], short, axis=0)])
    return pieces


def through_pieces(compute: Callable[[np.ndarray], Any], rows: np.ndarray, size: int) -> Any:
    """What `compute` makes of the rows of each piece, a pytree of arrays, put together on the
    host.
    """
    # All are asked for before the first is waited for.
    parts = [compute(piece) for piece in in_pieces(rows, size)]
    return jax.tree.map(
        lambda *xs: np.concatenate([np.asarray(x) for x in xs])[: len(rows)], *parts
    )
