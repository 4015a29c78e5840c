"""A user's data from a file, .npz or .csv, as a model's keyword arguments: arrays or columns by
name. Nothing is converted or left out without an error.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from nestedvi.errors import DataError

__all__ = ["check_takes", "load_data"]


def load_data(file: str) -> dict[str, np.ndarray]:
    """Arrays by name: those of an .npz file, or the columns of a .csv file with a header."""
    path = Path(file)
    if not path.is_file():
        raise DataError(f"There is no data file {file}.")
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise DataError(
                f"Cannot read {file} as an .npz file of plain arrays: {error}"
            ) from error
    if path.suffix == ".csv":
        return _load_csv(path)
    raise DataError(f"Data come as .npz or .csv; got {file}.")


def _load_csv(path: Path) -> dict[str, np.ndarray]:
    try:
        header, *lines = [
            line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
        ] or [""]
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text file: {error.reason}.") from error
    names = [name.strip().strip('"') for name in header.split(",")]
    if not all(name.isidentifier() for name in names) or len(set(names)) < len(names):
        raise DataError(
            f"The first line of {path} must name its columns, each once, as Python names; got"
            f" {header[:60]!r}."
        )
    rows = [line.split(",") for line in lines]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise DataError(
                f"Row {number} of {path} has {len(row)} entries; its header names {len(names)}"
                " columns."
            )
    if not rows:
        raise DataError(f"{path} has a header and no rows.")
    return {name: _column(path, name, [row[i] for row in rows]) for i, name in enumerate(names)}


def _column(path: Path, name: str, entries: list[str]) -> np.ndarray:
    """Whole numbers stay whole (they index), anything else must be a number."""
    for kind in (int, float):
        try:
            return np.array([kind(entry) for entry in entries])
        except ValueError:
            continue
    odd = next(entry for entry in entries if not _is_number(entry))
    raise DataError(f"Column {name!r} of {path} must hold numbers; got {odd.strip()!r}.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_takes(model: Any, data: Mapping[str, Any], *, model_name: str, file: str) -> None:
    """Data that the model has no argument for is a mistake in the file or in the model; neither is
    passed over.
    """
    if not data:
        return
    if not callable(model):
        raise DataError(f"{model_name} takes no data: leave out --data.")
    parameters = inspect.signature(model).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    taken = [
        parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    extra = [name for name in data if name not in taken]
    if extra:
        raise DataError(
            f"{file} holds {', '.join(map(repr, extra))}, which {model_name} does not"
            f" take; its arguments are {', '.join(map(repr, taken)) or 'none'}."
        )
