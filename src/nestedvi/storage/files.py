"""Result files: written whole or not at all, with the command, versions, device and seed that made
them. What they hold is not known here.
"""

import importlib.metadata
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nestedvi.distributed import is_first
from nestedvi.errors import CheckpointError

__all__ = [
    "check_writable",
    "output_folder",
    "provenance",
    "reserve",
    "to_json",
    "write_atomic",
    "write_json",
    "write_text",
]

# As much as tells a full disk from one with room.
_PROBE = 65_536
_PACKAGES = ("nestedvi", "jax", "jaxlib", "equinox", "optax", "numpyro", "numpy")


def output_folder(path: str | Path) -> Path:
    """The folder, made if need be and tried for writing, so that a long run does not find out at
    its end.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(
            f"Cannot write to the output folder {folder}: {error.strerror}. Choose another with"
            " --out."
        ) from error
    return folder


def check_writable(folder: Path) -> None:
    """Makes the folder and writes to it, so that a long run does not find out at its first save."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reserve(folder, _PROBE)
    except OSError as error:
        raise CheckpointError(
            f"Cannot write checkpoints to {folder}: {error.strerror}. Choose another folder."
        ) from error


def reserve(folder: Path, size: int) -> None:
    """Raises `OSError` if the disk has no room for that many bytes; nothing stays."""
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.write(bytes(size))
            file.flush()


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Calls `write` with a temporary name beside `path`, then renames it into place. Of several
    processes only the first one does.
    """
    if not is_first():
        return
    try:
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix
        )
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            # A machine that stops must not leave the name of the new file with nothing in it.
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            # mkstemp makes files for their owner only; a result is an ordinary file.
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror or error}.") from error


def to_json(content: Any) -> str:
    """JSON with arrays as lists; what is not finite becomes null, since JSON has no word for it."""
    return json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """`to_json` into a file, atomically."""
    text = to_json(content) + "\n"
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Text into a file, atomically."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomic(path, write)


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {str(k): _plain(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(v) for v in x]
    if isinstance(x, np.ndarray | jax.Array | np.generic):
        return _plain(np.asarray(x).tolist())
    if isinstance(x, float) and not np.isfinite(x):
        return None
    return x


def provenance(seed: int | None = None) -> dict[str, Any]:
    """What made a result: command, versions, device, seed (None where it is not known)."""
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES if _installed(name)}
    device = jax.devices()[0]
    return {
        "command": " ".join(
            [Path(sys.argv[0]).name, *(_without_folders(arg) for arg in sys.argv[1:])]
        ),
        "versions": {"python": platform.python_version(), **versions},
        "device": f"{device.platform}: {device.device_kind}",
        "cpu_count": os.cpu_count(),
        "seed": seed,
    }


def _without_folders(argument: str) -> str:
    """An absolute path cut to its last name: where it lay on this machine says nothing to a
    reader.
    """
    return re.sub(r"(^|=)/(?:.*/)?(?=.)", r"\1", argument.rstrip("/"))


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
