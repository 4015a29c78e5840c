"""Checkpoints: arrays and JSON through orbax, never code; written atomically, verified when read.

A checkpoint is a list of arrays (a pytree's leaves in order), a digest of each, and a fingerprint
of the configuration that made it. Orbax writes into a temporary folder and renames it, so that a
process killed in mid-write leaves the earlier checkpoints whole. A list of all files with their
digests comes last: what does not match it is damaged, and is not given to orbax, whose readers of
damaged files print tracebacks of their own.

Several processes write one checkpoint: orbax has each write its own part of arrays that lie on all.
The folder's lock, its tidying and the list of files are the first process's.
"""

import contextlib
import hashlib
import json
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jaxtyping import PyTree

from nestedvi.devices import to_host
from nestedvi.distributed import agree, is_first, num_processes
from nestedvi.errors import CheckpointError, NestedviWarning
from nestedvi.storage.files import check_writable, reserve, write_json
from nestedvi.storage.locks import Lock

__all__ = ["Checkpoints"]

_KEPT = 3
_LOCK, _FILES = ".lock", "files.json"
# Bytes of a checkpoint that are not its arrays.
_OVERHEAD = 100_000


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(
        np.ascontiguousarray(array).tobytes() + str((array.dtype, array.shape)).encode()
    ).hexdigest()


def _digest_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Checkpoints:
    """The checkpoints of one training, in one folder."""

    def __init__(self, folder: str | Path, fingerprint: dict[str, Any]):
        self.folder = Path(folder).absolute()
        self.fingerprint = json.loads(json.dumps(fingerprint))
        # Orbax reports every save at INFO and every missing optional feature at WARNING; neither
        # helps a user.
        logging.getLogger("absl").setLevel(logging.ERROR)
        self._lock: Lock | None = None
        self._first_only(self._claim)
        try:
            self._first_only(self._tidy)
            self._open()
        except BaseException as error:
            self._release()
            if isinstance(error, OSError):
                raise CheckpointError(
                    f"Cannot write checkpoints to {self.folder}: {error}. Choose another folder."
                ) from error
            raise

    def _first_only(self, do: Callable[[], None]) -> None:
        """In the first process; the others wait, and fail too where it fails."""
        failed: Exception | None = None
        if is_first():
            try:
                do()
            except (OSError, CheckpointError) as error:
                failed = error
        if agree(failed is not None)[0]:
            raise failed or CheckpointError(
                f"The first process cannot use the checkpoint folder {self.folder}, and says why."
            )

    def _claim(self) -> None:
        check_writable(self.folder)
        self._lock = Lock(self.folder / _LOCK, f"The checkpoint folder {self.folder}")

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _tidy(self) -> None:
        # Ours to remove, since we hold the lock: orbax does it in a thread, some time later.
        for left in self.folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(left, ignore_errors=True)

    def _open(self) -> None:
        options = ocp.CheckpointManagerOptions(
            max_to_keep=_KEPT,
            create=True,
            enable_async_checkpointing=False,
        )
        self._manager = ocp.CheckpointManager(self.folder, options=options)

    def save(self, step: int, tree: PyTree) -> None:
        """Writes the arrays of `tree`; returns when they are on disk. A step that is there already
        is left alone.
        """
        if step in self._manager.all_steps():
            return
        # An array that lies on several machines is written by all of them, each its own part.
        arrays = [
            x if isinstance(x, jax.Array) and not x.is_fully_addressable else np.asarray(x)
            for x in jax.tree.leaves(tree)
        ]
        # An empty array cannot be stored; its shape is in the fingerprint's template.
        state = {f"{i:05d}": x for i, x in enumerate(arrays) if x.size}
        meta = {
            "step": step,
            "fingerprint": self.fingerprint,
            "fingerprint_digest": _digest_json(self.fingerprint),
            "digests": {name: _digest(to_host(x)) for name, x in state.items()},
        }
        size = round(1.1 * sum(x.nbytes for x in arrays)) + _OVERHEAD
        try:
            # Orbax fails with pages of tracebacks, from threads of its own: better not to begin.
            self._first_only(lambda: reserve(self.folder, size))
        except (OSError, CheckpointError) as error:
            raise self._cannot_write(step, error) from error
        try:
            with _quiet():
                self._manager.save(
                    step,
                    args=ocp.args.Composite(
                        state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(meta)
                    ),
                )
                self._manager.wait_until_finished()
        except Exception as error:
            # Not only OSError: what fails in native code comes as errors of other kinds.
            if num_processes() > 1:
                # Others may have written their part, or be gone: all end and start again together.
                raise
            self._recover()
            raise self._cannot_write(step, error) from error
        # The step is whole without it, and its arrays have digests of their own.
        if is_first():
            with contextlib.suppress(OSError):
                _list_files(self.folder / str(step))

    def _cannot_write(self, step: int, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"Cannot write the checkpoint of step {step} to {self.folder}: {_first_line(error)}."
        )

    def _recover(self) -> None:
        """After a save that failed: what it left is removed, and the next one starts afresh."""
        with contextlib.suppress(Exception):
            self._manager.close()
        with contextlib.suppress(Exception):
            self._tidy()
            self._open()

    def restore(self, template_for: Any) -> tuple[int, PyTree] | None:
        """The newest readable checkpoint, or None if there is none; says so when a damaged one had
        to be passed over.

        `template_for(step)` gives a pytree of arrays with the structure, shapes and dtypes that the
        state has at that step.
        """
        damaged = []
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                with _quiet():
                    tree = self._restore_step(step, template_for(step))
            except CheckpointError:
                raise
            except Exception as error:
                # Whatever a damaged file makes the reader raise: the earlier checkpoint is the
                # answer to all of it.
                damaged.append(f"step {step} ({_first_line(error)})")
                continue
            if damaged:
                warnings.warn(
                    f"Damaged checkpoint in {self.folder}: {', '.join(damaged)}. Going on from step"
                    f" {step}, the last good one.",
                    NestedviWarning,
                    stacklevel=2,
                )
            # Steps after the good one will be written again.
            for bad in [s for s in self._manager.all_steps() if s > step]:
                self._manager.delete(bad)
            return step, tree
        if damaged:
            raise CheckpointError(
                f"No checkpoint in {self.folder} can be read ({', '.join(damaged)}). Delete the"
                " folder to start again."
            )
        return None

    def _restore_step(self, step: int, template: PyTree) -> PyTree:
        _check_files(self.folder / str(step))
        meta = self._manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))[
            "meta"
        ]
        # A damaged fingerprint must not pass for another configuration's.
        if _digest_json(meta["fingerprint"]) != meta["fingerprint_digest"]:
            raise ValueError("the fingerprint does not match its digest")
        if meta.get("step") != step:
            raise ValueError(f"what it holds is step {meta.get('step', 'of an earlier version')}")
        self._check_fingerprint(meta["fingerprint"])
        leaves, structure = jax.tree.flatten(template)
        leaves = [np.asarray(x) for x in leaves]
        wanted = {f"{i:05d}": x for i, x in enumerate(leaves) if x.size}
        if wanted.keys() != meta["digests"].keys():
            raise ValueError("arrays are missing")
        args = ocp.args.Composite(state=ocp.args.StandardRestore(wanted))
        state = {
            name: np.asarray(x)
            for name, x in self._manager.restore(step, args=args)["state"].items()
        }
        for name, x in state.items():
            if _digest(x) != meta["digests"][name]:
                raise ValueError(f"array {name} does not match its digest")
        return jax.tree.unflatten(
            structure, [state.get(f"{i:05d}", x) for i, x in enumerate(leaves)]
        )

    def _check_fingerprint(self, stored: dict[str, Any]) -> None:
        keys = [
            k for k in {**self.fingerprint, **stored} if self.fingerprint.get(k) != stored.get(k)
        ]
        if keys:
            differences = "; ".join(
                f"{k}: here {self._short(self.fingerprint, k)}, there {self._short(stored, k)}"
                for k in sorted(keys)
            )
            raise CheckpointError(
                f"The checkpoint in {self.folder} belongs to another configuration ({differences})."
                " Use another folder, or delete this one to start again."
            )

    @staticmethod
    def _short(entries: dict[str, Any], key: str) -> str:
        text = json.dumps(entries.get(key))
        return text if len(text) < 60 else text[:57] + "…"

    def close(self) -> None:
        """Releases the folder."""
        try:
            self._manager.close()
        finally:
            self._release()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What fails is raised here; what orbax and its threads print besides is of no use to a
    user.
    """
    logger, hook = logging.getLogger("absl"), sys.excepthook
    level = logger.level

    def other(kind: Any, error: Any, at: Any) -> None:
        if not (isinstance(error, RuntimeError) and "Event loop is closed" in str(error)):
            hook(kind, error, at)

    logger.setLevel(logging.CRITICAL + 1)
    sys.excepthook = other
    try:
        yield
    finally:
        logger.setLevel(level)
        sys.excepthook = hook


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _digests_of_files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != _FILES
    }


def _list_files(folder: Path) -> None:
    files = _digests_of_files(folder)
    write_json(folder / _FILES, {"files": files, "digest": _digest_json(files)})


def _check_files(folder: Path) -> None:
    """Raises `ValueError` if a file is not what was written. Without a list, which a process that
    was killed did not come to write, the digests of the arrays decide.
    """
    if not (folder / _FILES).exists():
        return
    try:
        content = json.loads((folder / _FILES).read_text(encoding="utf-8"))
        files, digest = content["files"], content["digest"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{_FILES} cannot be read") from error
    if _digest_json(files) != digest:
        raise ValueError(f"{_FILES} was changed")
    digests = _digests_of_files(folder)
    for name, wanted in files.items():
        if name not in digests:
            raise ValueError(f"{name} is missing")
        if digests[name] != wanted:
            raise ValueError(f"{name} was changed")
