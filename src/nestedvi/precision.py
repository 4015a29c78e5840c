"""Matrix products in full precision, whatever the device's default is.

An NVIDIA GPU multiplies single-precision matrices in TF32 unless told otherwise: three digits,
which is too few for log densities, weights and metrics.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

__all__ = ["in_full_precision"]

P = ParamSpec("P")
T = TypeVar("T")


def in_full_precision(fn: Callable[P, T]) -> Callable[P, T]:
    """The same function; products that it traces or runs are in the precision of their inputs."""

    @wraps(fn)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.default_matmul_precision("highest"):
            return fn(*args, **kwargs)

    return wrapped
