"""A grid's cells: each is computed once, written on its own, and read back when the same cell is
asked for again. What it computes is a function that it is given.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nestedvi._types import Key
from nestedvi.storage.files import write_atomic, write_json

__all__ = ["Result", "cell_key", "fingerprint", "public", "recorded", "run_cached"]

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
    removed when it is done.
    """
    mark = fingerprint(content)
    record, arrays_file = folder / f"{name}.json", folder / f"{name}.npz"
    if record.exists() and arrays_file.exists():
        row = json.loads(record.read_text(encoding="utf-8"))
        if row.get("fingerprint") == mark:
            with np.load(arrays_file, allow_pickle=False) as arrays:
                return row, dict(arrays)
    work = folder / f"{name}-{mark}"
    row, arrays = compute(work)
    row = {**row, "device": jax.devices()[0].device_kind, "cell": content, "fingerprint": mark}
    # The old record goes first: it must never stand beside new arrays.
    record.unlink(missing_ok=True)
    write_atomic(arrays_file, lambda path: np.savez_compressed(path, **arrays))  # type: ignore[arg-type]
    write_json(record, row)
    shutil.rmtree(work, ignore_errors=True)
    return row, arrays


def public(row: dict[str, Any]) -> dict[str, Any]:
    """A row as results show it: without the cell's whole configuration, which they hold once."""
    return {name: value for name, value in row.items() if name != "cell"}
