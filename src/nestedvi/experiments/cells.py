"""A grid's cells: each is computed once, written on its own, and read back when the same cell is asked for again."""

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
from nestedvi.report.files import write_atomic, write_json

__all__ = ["cell_key", "fingerprint", "run_cached"]

Arrays = dict[str, np.ndarray]


def fingerprint(cell: Any) -> str:
    """Tells a cell's result (a dataclass of everything that it depends on) from that of another configuration."""
    return hashlib.sha256(json.dumps(asdict(cell), sort_keys=True).encode()).hexdigest()[:16]


def cell_key(seed: int, name: str) -> Key:
    """A key of the cell's own, whatever other cells there are."""
    return jax.random.fold_in(jax.random.key(seed), int(hashlib.sha256(name.encode()).hexdigest()[:6], 16))


def run_cached(
    cell: Any, folder: Path, compute: Callable[[Path], tuple[dict[str, Any], Arrays]]
) -> tuple[dict[str, Any], Arrays]:
    """The cell's row and arrays, computed or read back. `compute` gets a folder for checkpoints, removed when it is done."""
    mark = fingerprint(cell)
    record, arrays_file = folder / f"{cell.name}.json", folder / f"{cell.name}.npz"
    if record.exists() and arrays_file.exists():
        row = json.loads(record.read_text(encoding="utf-8"))
        if row.get("fingerprint") == mark:
            with np.load(arrays_file, allow_pickle=False) as arrays:
                return row, dict(arrays)
    work = folder / f"{cell.name}-{mark}"
    row, arrays = compute(work)
    row = {**row, "device": jax.devices()[0].device_kind, "cell": asdict(cell), "fingerprint": mark}
    write_atomic(arrays_file, lambda path: np.savez_compressed(path, **arrays))  # type: ignore[arg-type]
    write_json(record, row)
    shutil.rmtree(work, ignore_errors=True)
    return row, arrays
