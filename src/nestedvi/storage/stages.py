"""Stages of a long computation, each kept when it is done: the same computation in another process
goes on with the stage that it was in. What a stage computes is not known here.

A stage is one file: a line with a digest, then arrays and JSON (`codec`). It holds the fingerprint
of the whole computation, so that a folder is never continued by a different one.
"""

import hashlib
import io
import json
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nestedvi.errors import CheckpointError, NestedviWarning
from nestedvi.storage.codec import decode, encode
from nestedvi.storage.files import check_writable, write_atomic
from nestedvi.storage.locks import Lock

__all__ = ["KeptStages"]

T = TypeVar("T")
_HEAD = b"nestedvi stage "


class KeptStages:
    """The stages of one computation, in one folder.

    `fingerprint` tells it from others, a text for each part that may differ. `known` are objects by
    name that results refer to and that are not stored.
    """

    def __init__(
        self, folder: str | Path, fingerprint: Mapping[str, str], known: Mapping[str, Any]
    ):
        self.folder = Path(folder).absolute()
        self._fingerprint, self._known = dict(fingerprint), known
        check_writable(self.folder)
        self._lock = Lock(self.folder / ".lock", f"The checkpoint folder {self.folder}")
        try:
            self._check_all()
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Releases the folder."""
        self._lock.release()

    def keep(self, name: str, compute: Callable[[], T]) -> T:
        """The stage's result: read, where it was done before, or computed and written. A disk that
        is full says so and does not end the computation.
        """
        path = self.folder / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.stage"
        if path.exists():
            try:
                content, arrays = _read(path)
                if content["name"] != name:
                    raise ValueError(f"it is the stage {content['name']!r}")
                return decode(content["result"], arrays, self._known)
            except Exception as error:
                # Whatever a damaged file makes its reader raise: the stage is computed again.
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                warnings.warn(
                    f"{path} is damaged ({reason.rstrip('.')}). The stage is computed again.",
                    NestedviWarning,
                    stacklevel=3,
                )
        result = compute()
        try:
            spec, arrays = encode(result, self._known)
            self._write(path, {"name": name, "result": spec}, arrays)
        except (OSError, TypeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            warnings.warn(
                f"The stage {name!r} cannot be kept in {self.folder}: {reason.rstrip('.')}. The"
                " computation goes on.",
                NestedviWarning,
                stacklevel=3,
            )
            return result
        # Through the same door as in a process that resumes, so that both go on from the same.
        return decode(spec, arrays, self._known)

    def _write(self, path: Path, content: dict[str, Any], arrays: list[np.ndarray]) -> None:
        text = json.dumps({**content, "fingerprint": self._fingerprint})
        stored = {f"{i:05d}": x for i, x in enumerate(arrays)}
        buffer = io.BytesIO()
        raw = np.frombuffer(text.encode(), np.uint8)
        np.savez(buffer, content=raw, **stored)  # type: ignore[arg-type]
        payload = buffer.getvalue()
        head = _HEAD + hashlib.sha256(payload).hexdigest().encode() + b"\n"

        def write(temporary: Path) -> None:
            temporary.write_bytes(head + payload)

        write_atomic(path, write)

    def _check_all(self) -> None:
        """Raises if the folder holds stages of another computation, and says what differs."""
        for path in sorted(self.folder.glob("*.stage")):
            try:
                there = _read(path)[0]["fingerprint"]
            except Exception:
                # Damaged: `keep` says so when it comes to it.
                continue
            names = [*self._fingerprint, *(set(there) - set(self._fingerprint))]
            differ = [n for n in names if self._fingerprint.get(n) != there.get(n)]
            if differ:
                raise CheckpointError(
                    f"{self.folder} holds the stages of another call, with another"
                    f" {' and another '.join(_described(n, there) for n in differ)}. Use another"
                    " folder, or delete this one to start again."
                )


def _described(name: str, there: Mapping[str, str]) -> str:
    """A part of a fingerprint, with its value unless that is a digest."""
    value = there.get(name)
    return name if value is None or re.fullmatch("[0-9a-f]{64}", value) else f"{name} ({value})"


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    head, _, payload = path.read_bytes().partition(b"\n")
    if head != _HEAD + hashlib.sha256(payload).hexdigest().encode():
        raise ValueError("it does not match its digest")
    with np.load(io.BytesIO(payload), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    content = json.loads(arrays.pop("content").tobytes().decode())
    return content, [arrays[name] for name in sorted(arrays)]
