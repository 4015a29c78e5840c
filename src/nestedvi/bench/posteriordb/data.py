"""Data and reference moments of posteriordb, found in a folder of the user's and never fetched.

Where they are looked for: the folder given, else the environment variable NESTEDVI_DATA, each with
or without a subfolder `posteriordb`. A data set is `<name>.json.gz` as posteriordb has it;
`references.json` holds moments of the reference draws.
"""

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nestedvi.errors import DataError

__all__ = ["Moments", "Reference", "find_folder", "load_data", "load_references"]

VARIABLE = "NESTEDVI_DATA"
_REFERENCES = "references.json"


class Moments(NamedTuple):
    """Mean, standard deviation and the 5, 50 and 95 % quantiles of a parameter's reference
    draws.
    """

    mean: float
    sd: float
    low: float
    median: float
    high: float


class Reference(NamedTuple):
    """The reference of one posterior: how many draws, and moments by Stan's names, `beta[1]`
    first.
    """

    draws: int
    moments: Mapping[str, Moments]


def find_folder(folder: str | Path | None = None) -> Path:
    """The folder that holds `references.json`."""
    folder = folder or os.environ.get(VARIABLE)
    if not folder:
        raise DataError(
            "The data of posteriordb are not part of this package: give the folder that holds"
            f" {_REFERENCES} with --data-dir or {VARIABLE}."
        )
    for place in (Path(folder) / "posteriordb", Path(folder)):
        if (place / _REFERENCES).is_file():
            return place
    raise DataError(
        f"{folder} holds no {_REFERENCES} (looked in it and in posteriordb/). Give the folder that"
        f" holds it with --data-dir or {VARIABLE}."
    )


def load_references(folder: Path) -> dict[str, Reference]:
    """Every posterior's reference."""
    return {
        name: Reference(
            content["draws"],
            {parameter: Moments(*x) for parameter, x in content["reference"].items()},
        )
        for name, content in _read(folder / _REFERENCES).items()
    }


def load_data(name: str, folder: Path) -> dict[str, Any]:
    """A data set as posteriordb has it: a dict of numbers and lists."""
    return _read(folder / f"{name}.json.gz")


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
        return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"Cannot read {path}: {error}. Put posteriordb's file there.") from error
