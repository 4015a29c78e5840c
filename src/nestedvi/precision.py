"""Matrix products in full precision, whatever the device's default is, and double precision for a
while.

An NVIDIA GPU multiplies single-precision matrices in TF32 unless told otherwise: three digits,
which is too few for log densities, weights and metrics.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.experimental

__all__ = ["double_precision", "in_full_precision"]

P = ParamSpec("P")
T = TypeVar("T")


def in_full_precision(fn: Callable[P, T]) -> Callable[P, T]:
    """The same function; products that it traces or runs are in the precision of their inputs."""

    @wraps(fn)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.default_matmul_precision("highest"):
            return fn(*args, **kwargs)

    return wrapped


@contextmanager
def double_precision() -> Iterator[None]:
    """Arrays made and programs compiled inside are in double precision."""
    # It had another place before JAX 0.8.
    place: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    with place.enable_x64(True):
        yield
