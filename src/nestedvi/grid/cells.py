"""A grid's cells: each is computed once, written on its own, and read back when the same cell is
asked for again. What it computes is a function that it is given.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nestedvi._types import Key
from nestedvi.errors import NestedviWarning
from nestedvi.storage.files import to_json, write_atomic, write_json
from nestedvi.storage.locks import locked

__all__ = ["Result", "cell_key", "fingerprint", "public", "read_cached", "recorded", "run_cached"]

Arrays = dict[str, np.ndarray]
Result = tuple[dict[str, Any], Arrays]


def recorded(config: Any) -> dict[str, Any]:
    """A configuration (a dataclass) as result files hold it. They call the order of execution
    "schedule", as they did before temperatures had schedules: old and new results stay comparable.
    """
    return {"schedule" if name == "order" else name: x for name, x in asdict(config).items()}


def fingerprint(content: dict[str, Any]) -> str:
    """Tells a cell's result from that of another configuration; `content` is everything that the
    result depends on.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def cell_key(seed: int, name: str) -> Key:
    """A key of the cell's own, whatever other cells there are."""
    return jax.random.fold_in(
        jax.random.key(seed), int(hashlib.sha256(name.encode()).hexdigest()[:6], 16)
    )


def run_cached(
    name: str, content: dict[str, Any], folder: Path, compute: Callable[[Path], Result]
) -> Result:
    """The cell's row and arrays, computed or read back. `compute` gets a folder for checkpoints,
    removed when it is done. One process at a time works on a cell.
    """
    mark = fingerprint(content)
    record, arrays_file = folder / f"{name}.json", folder / f"{name}.npz"
    with locked(folder / f".{name}.lock", str(record)):
        known = _read(record, arrays_file, mark)
        if known is not None:
            return known
        work = folder / f"{name}-{mark}"
        row, arrays = compute(work)
        row = {**row, "device": jax.devices()[0].device_kind, "cell": content, "fingerprint": mark}
        row["digest"] = _digest(row, arrays)
        # The old record goes first: it must never stand beside new arrays.
        record.unlink(missing_ok=True)
        write_atomic(
            arrays_file,
            lambda path: np.savez_compressed(path, **arrays),  # type: ignore[arg-type]
        )
        write_json(record, row)
        shutil.rmtree(work, ignore_errors=True)
        return row, arrays


def read_cached(name: str, content: dict[str, Any], folder: Path) -> Result | None:
    """The cell's row and arrays if `run_cached` computed them before; nothing is computed."""
    return _read(folder / f"{name}.json", folder / f"{name}.npz", fingerprint(content))


def _digest(row: dict[str, Any], arrays: Arrays) -> str:
    """Of everything that a cell's two files hold."""
    shown = json.loads(to_json({k: x for k, x in row.items() if k != "digest"}))
    digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode())
    for name, x in sorted(arrays.items()):
        array = np.ascontiguousarray(x)
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _read(record: Path, arrays_file: Path, mark: str) -> Result | None:
    """What was computed before, or None if nothing was, or not for this configuration."""
    if not (record.exists() and arrays_file.exists()):
        return None
    file = record
    try:
        row = json.loads(record.read_text(encoding="utf-8"))
        if row.get("fingerprint") != mark:
            return None
        file = arrays_file
        with np.load(arrays_file, allow_pickle=False) as stored:
            arrays = dict(stored)
        # Cells of earlier versions have no digest.
        if row.get("digest", wanted := _digest(row, arrays)) != wanted:
            raise ValueError("it does not match its digest")
    except Exception as error:
        # Whatever a damaged file makes its reader raise: the cell is computed again.
        _set_aside(file, error)
        return None
    return row, arrays


def _set_aside(file: Path, error: Exception) -> None:
    """A damaged file under a name that says so: it may be all that is left of something."""
    aside = file.with_name(f"{file.name}.damaged")
    file.replace(aside)
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    warnings.warn(
        f"{file} is damaged ({reason}). It is kept as {aside.name}, and the cell is computed"
        " again.",
        NestedviWarning,
        stacklevel=4,
    )


def public(row: dict[str, Any]) -> dict[str, Any]:
    """A row as results show it: without the cell's whole configuration, which they hold once, and
    without what only its own files need.
    """
    return {name: value for name, value in row.items() if name not in ("cell", "digest")}
