"""How the programs of `sample` are compiled.

Before it chooses a kernel for a product of matrices XLA compiles and times many of them on an
NVIDIA GPU. The programs of an answer run for less than a second and would be compiled for a minute;
without that choice they are compiled in a few seconds and run a little slower. What is trained for
hours is compiled as JAX does by default.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx

__all__ = ["compiled_soon", "uncompiled"]

P = ParamSpec("P")
T = TypeVar("T")

# Both concern GPUs only.
_OPTIONS = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}


def compiled_soon(fn: Callable[P, T]) -> Callable[P, T]:
    """The function compiled for its arguments' shapes, in little time."""
    options: dict[str, Any] = {"compiler_options": _OPTIONS}
    return eqx.filter_jit(fn, **options)


def uncompiled(fn: Callable[P, T]) -> Callable[P, T]:
    """What `compiled_soon` was given, for use inside of another compiled function: JAX takes
    options for a whole program only.
    """
    original: Callable[P, T] = getattr(fn, "__wrapped__", fn)
    return original
