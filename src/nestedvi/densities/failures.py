"""Why a user's function failed, in a sentence: what JAX's own errors mean for who wrote a model. It
runs nothing.
"""

import traceback
from pathlib import Path

import jax

__all__ = ["explain"]

_LIBRARIES = ("jax", "jaxlib", "numpyro", "equinox", "nestedvi", "numpy", "jaxtyping", "beartype")
_TRACED = (
    "JAX traces the function once for all values, so Python cannot see the value of a latent or"
    " of a particle. Instead of `if` use jnp.where(condition, a, b) or jax.lax.cond, instead of"
    " `for` or `while` over values jax.lax.fori_loop, and jax.numpy instead of numpy, math, float()"
    " or int()"
)


def explain(error: Exception) -> str:
    """The error in one sentence without its full stop, with the line of the user's file."""
    if isinstance(error, _TRACER_ERRORS):
        return f"it needs the value of something that is only traced{_where(error)}. {_TRACED}"
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return f"{text.rstrip('.')}{_where(error)}"


_TRACER_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def _where(error: Exception) -> str:
    """The innermost line that is not a library's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        parts = Path(frame.filename).parts
        if "site-packages" in parts or not frame.filename.endswith(".py"):
            continue
        if any(name in parts for name in _LIBRARIES) or "lib" in parts:
            continue
        return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""
