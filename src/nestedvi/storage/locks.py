"""One process at a time: a lock file that names the process which holds it.

The operating system gives the lock up when its process ends, however it ends. So what a dead
process left is taken over without a question.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nestedvi.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows has no advisory locks of this kind: nobody is kept out there.
    fcntl = None  # type: ignore[assignment]

__all__ = ["Lock", "locked"]

_TRIES = 20


class Lock:
    """A lock on `path`, held until `release`; raises `CheckpointError` with the other's process
    where it is taken. `what` is what the lock protects, for that sentence.
    """

    def __init__(self, path: Path, what: str):
        self._path, self._released = path, False
        for _ in range(_TRIES):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if not self._try():
                    raise CheckpointError(
                        f"{what} is in use by {_holder(path)}. Wait until it ends, or choose"
                        " another folder."
                    )
                if self._is_current():
                    break
            except BaseException:
                os.close(self._handle)
                raise
            # Its holder removed the file between our opening and locking it.
            os.close(self._handle)
        else:
            raise CheckpointError(f"{what} is in use by processes that come and go. Try again.")
        # Who holds it is only for the message: a full disk must not keep the lock from being held.
        with suppress(OSError):
            os.ftruncate(self._handle, 0)
            note = {"pid": os.getpid(), "host": socket.gethostname()}
            os.pwrite(self._handle, json.dumps(note).encode(), 0)

    def _try(self) -> bool:
        if fcntl is None:
            return True
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # A file system without locks: nobody is kept out.
            return True
        return True

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._handle), os.stat(self._path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """The file goes while it is still locked, so that nobody holds a lock on a file that is not
        there.
        """
        if self._released:
            return
        with suppress(OSError):
            if self._is_current():
                self._path.unlink()
        os.close(self._handle)
        self._released = True


def _holder(path: Path) -> str:
    """The process that holds a lock, in words."""
    try:
        note: Any = json.loads(path.read_text(encoding="utf-8"))
        pid, host = int(note["pid"]), str(note["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    if host != socket.gethostname():
        return f"process {pid} on {host}"
    return "this process" if pid == os.getpid() else f"process {pid}"


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Holds a `Lock` for the length of a block."""
    lock = Lock(path, what)
    try:
        yield
    finally:
        lock.release()
