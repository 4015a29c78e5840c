"""What a user passes to a NumPyro model, as the model can use it: tables become arrays, and numbers
are told from sizes. Nothing here runs a sampler or judges the data.

A scalar that only enters arithmetic is data: another value of it must not compile anew. Whether it
only does is found by running the model with it unknown; a number that the model branches on, counts
to or shapes arrays by stays part of the program.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

__all__ = ["Arguments", "readings"]


class Arguments(NamedTuple):
    """The arguments of a model, positional and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def named(self) -> Iterator[tuple[str, Any]]:
        """Every argument with a name to speak of it by."""
        for position, value in enumerate(self.args):
            yield f"argument {position + 1}", value
        yield from ((repr(name), value) for name, value in self.kwargs.items())

    def places(self, whole: bool) -> tuple[int | str, ...]:
        """Where the scalars are; with `whole` the integers too."""
        items: list[tuple[int | str, Any]] = [*enumerate(self.args), *self.kwargs.items()]
        return tuple(place for place, value in items if _is_scalar(value, whole))

    def at(self, places: tuple[int | str, ...]) -> tuple[Any, ...]:
        return tuple(self.args[p] if isinstance(p, int) else self.kwargs[p] for p in places)

    def put(self, places: tuple[int | str, ...], values: Iterable[Any]) -> "Arguments":
        args, kwargs = list(self.args), dict(self.kwargs)
        for place, value in zip(places, values, strict=True):
            if isinstance(place, int):
                args[place] = value
            else:
                kwargs[place] = value
        return Arguments(tuple(args), kwargs)

    def scalars(self, run: Callable[["Arguments"], Any]) -> tuple[int | str, ...]:
        """Places of the scalars that `run` does not need to know: all, or those that are no
        integers, or none.
        """
        for whole in (True, False):
            places = self.places(whole)
            if not places:
                continue
            try:
                jax.eval_shape(lambda x, places=places: run(self.put(places, x)), self.at(places))
            except Exception:  # a model may raise anything where it needs a number
                continue
            return places
        return ()


def _is_scalar(value: Any, whole: bool) -> bool:
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.number | np.ndarray | jax.Array
    ):
        return False
    if np.shape(value) != ():
        return False
    kind = np.asarray(value).dtype.kind
    return kind == "f" or (whole and kind in "iu")


def readings(args: Iterable[Any], kwargs: Mapping[str, Any] | None) -> Iterator[Arguments]:
    """Ways to read the arguments, the likeliest first.

    A data frame is a matrix, or a table whose columns the model takes by name, or is used by the
    model as the object that it is. Arrays are copied: their owner may change them later.
    """
    given = (tuple(args), dict(kwargs or {}))
    leaves = jax.tree.leaves(given, is_leaf=_is_table)
    ways: list[Callable[[Any], Any]] = [_matrix]
    if any(map(_is_frame, leaves)):
        ways += [_columns]
    if any(map(_is_table, leaves)):
        ways += [lambda x: x]
    for read in ways:
        try:
            yield Arguments(
                *jax.tree.map(lambda x, read=read: read(_own(x)), given, is_leaf=_is_table)
            )
        except (TypeError, ValueError):
            # Words in a table: no matrix, though its columns may be of use.
            continue


def _own(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _is_table(value: Any) -> bool:
    """A series or a data frame of pandas or of a library that follows it."""
    return hasattr(value, "to_numpy") and not isinstance(value, np.ndarray | jax.Array)


def _is_frame(value: Any) -> bool:
    return _is_table(value) and hasattr(value, "columns")


def _matrix(value: Any) -> Any:
    return _numbers(value.to_numpy()) if _is_table(value) else value


def _numbers(array: Any) -> np.ndarray:
    """As it is, or as floats where missing entries made it an array of objects."""
    array = np.array(array)
    return array if array.dtype.kind in "biuf" else array.astype(float)


def _columns(value: Any) -> Any:
    if not _is_frame(value):
        return _matrix(value)
    columns = {}
    for name in value.columns:
        column = value[name].to_numpy()
        try:
            columns[name] = _numbers(column)
        except (TypeError, ValueError):
            columns[name] = column
    return columns
