"""Arguments of the functions that users call: each check says what was expected, what came and what
to do. Nothing is converted on the quiet.
"""

import operator
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "as_floats",
    "check_arrays",
    "check_folder",
    "check_key",
    "check_kind",
    "check_number",
    "check_whole",
    "shown",
]

_MOST = 60


def shown(value: Any) -> str:
    """A value as an error shows it: short, with its type."""
    kind = type(value).__name__
    if isinstance(value, np.ndarray | jax.Array):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = repr(value)
    return f"{text if len(text) <= _MOST else text[:_MOST] + '…'} ({kind})"


def check_whole(name: str, value: Any, *, least: int = 1, why: str = "") -> int:
    """`value` as a Python integer of `least` or more. `why` ends the sentence of a number that is
    too small.
    """
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        near = _nearest_whole(value)
        hint = f" Write {name}={near}." if near is not None else ""
        raise TypeError(f"{name} is a whole number; got {shown(value)}.{hint}") from None
    if number < least:
        raise ValueError(f"{name} is {least} or more; got {number}.{why and ' ' + why}")
    return number


def _nearest_whole(value: Any) -> int | None:
    try:
        return round(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
) -> float:
    """`value` as a Python float within its bounds."""
    wanted = f"{name} is a number"
    if above is not None and below is not None:
        wanted += f" between {above:g} and {below:g}"
    else:
        bounds = (("above", above), ("of at least", least), ("below", below))
        wanted += "".join(f" {word} {bound:g}" for word, bound in bounds if bound is not None)
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}; got {shown(value)}.") from None
    inside = (
        (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
    )
    if not inside:
        raise ValueError(f"{wanted}; got {number:g}.")
    return number


def check_key(key: Any) -> None:
    """One key of JAX, of the new kind or the old."""
    hint = "Write jax.random.key(0), with any whole number as the seed."
    dtype = getattr(key, "dtype", None)
    typed = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    if not typed and (dtype != np.uint32 or not np.ndim(key) >= 1):
        raise TypeError(f"The first argument is a key of JAX; got {shown(key)}. {hint}")
    if np.ndim(key) != (0 if typed else 1):
        raise ValueError(
            f"The first argument is one key; got {np.shape(key)[0]} of them. Give one, keys[0] say."
        )


def check_kind(name: str, value: Any, kind: Any, hint: str) -> None:
    """`value` is of a class (or one of several); `hint` is a sentence that says how to get one."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {hint}; got {shown(value)}.")


def check_folder(name: str, value: Any) -> None:
    """A path, or None."""
    if value is not None and not isinstance(value, str | os.PathLike):
        raise TypeError(
            f"{name} is a folder, as a text or a pathlib.Path; got {shown(value)}. Leave it out to"
            " keep nothing."
        )
    if value is not None and not os.fspath(value):
        raise ValueError(f"{name} is a folder; got an empty text. Write '.' for this one.")


def as_floats(name: str, value: Any) -> jax.Array:
    """`value` as an array of JAX's default precision."""
    try:
        return jnp.asarray(value, dtype=jnp.result_type(float))
    except (TypeError, ValueError):
        raise TypeError(f"{name} is a number or an array of numbers; got {shown(value)}.") from None


def check_arrays(arguments: Mapping[str, Any]) -> None:
    """Every array among a model's arguments holds numbers."""
    for name, value in arguments.items():
        for x in jax.tree.leaves(value):
            dtype = getattr(x, "dtype", None)
            if isinstance(dtype, np.dtype) and dtype.kind not in "biufcV":
                what = {"O": "objects", "M": "dates", "m": "times"}.get(dtype.kind, "text")
                raise TypeError(
                    f"{name} must hold numbers; got an array of {what} (dtype {dtype}). Convert it"
                    " first, with .astype(float) say, or give categories as whole numbers."
                )
