"""A user's data from a file, .npz or .csv, as a model's keyword arguments: arrays or columns by
name. Nothing is converted or left out without an error.
"""

import codecs
import csv
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
    rows, separator = _rows(path)
    header, rows = [name.strip() for name in rows[0]], rows[1:]
    # Spreadsheets write columns that were only ever touched: no name and nothing in them.
    while (
        len(header) > 1
        and not header[-1]
        and not any("".join(row[len(header) - 1 :]) for row in rows)
    ):
        header = header[:-1]
    rows = [row[: len(header)] if not "".join(row[len(header) :]) else row for row in rows]
    if not all(name.isidentifier() for name in header) or len(set(header)) < len(header):
        raise DataError(
            f"The first line of {path} must name its columns, each once, as Python names; got"
            f" {separator.join(header)[:60]!r}."
        )
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise DataError(
                f"Row {number} of {path} has {len(row)} entries; its header names {len(header)}"
                " columns."
            )
    if not rows:
        raise DataError(f"{path} has a header and no rows.")
    # A decimal comma is what semicolons and tabs are for.
    decimal_comma = separator != ","
    return {
        name: _column(path, name, [row[i].strip() for row in rows], decimal_comma)
        for i, name in enumerate(header)
    }


def _rows(path: Path) -> tuple[list[list[str]], str]:
    """The rows of a table that are not empty, and what separates their entries: a comma, or as
    spreadsheets write it where the comma is a decimal one, a semicolon or a tab.
    """
    raw = path.read_bytes()
    encoding = "utf-16" if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    try:
        lines = raw.decode(encoding).splitlines()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is no text file in UTF-8 ({error.reason}): save it as CSV UTF-8."
        ) from error
    lines = [line for line in lines if line.strip()]
    separator = None
    if lines and lines[0].strip().lower().startswith("sep="):
        separator, lines = lines[0].strip()[4:5] or None, lines[1:]
    first = lines[0] if lines else ""
    separator = separator or next((mark for mark in ";\t" if mark in first), ",")
    rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    return [row for row in rows if any(entry.strip() for entry in row)] or [[""]], separator


def _column(path: Path, name: str, entries: list[str], decimal_comma: bool) -> np.ndarray:
    """Whole numbers stay whole (they index), anything else must be a number."""
    plain = [entry.replace(",", ".") for entry in entries] if decimal_comma else entries
    for kind in (int, float):
        try:
            return np.array([kind(entry) for entry in plain])
        except ValueError:
            continue
    row = next(row for row, entry in enumerate(plain) if not _is_number(entry))
    row, odd = row + 2, entries[row]
    if not odd:
        raise DataError(
            f"Column {name!r} of {path} must hold numbers; row {row} is empty there. Write nan for"
            " what is missing, and use obs_mask in the model."
        )
    raise DataError(
        f"Column {name!r} of {path} must hold numbers; got {odd!r} in row {row}. Write classes as"
        " whole numbers, and leave out a column that is no argument of the model."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_takes(
    model: Any,
    data: Mapping[str, Any],
    *,
    model_name: str,
    file: str,
    model_takes_particle: bool = False,
) -> None:
    """Data that the model has no argument for, or an argument without data, is a mistake in the
    file or in the model; neither is passed over.

    An argument that is None by default may be left out; if a site lacks its data then, `sample`
    says so.
    """
    if not data:
        return
    if not callable(model):
        raise DataError(f"{model_name} takes no data: leave out --data.")
    parameters = list(inspect.signature(model).parameters.values())
    if model_takes_particle:
        parameters = parameters[1:]
    single = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.kind in single
        and parameter.default is parameter.empty
        and parameter.name not in data
    ]
    if missing:
        raise DataError(
            f"{file} has no {', '.join(map(repr, missing))}, which {model_name} needs; it holds"
            f" {', '.join(map(repr, data))}."
        )
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
