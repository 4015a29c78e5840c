"""Ctrl-C: what has something to save is asked to stop, and nothing is torn inside of JAX.

An exception that Ctrl-C raises while JAX lowers or compiles a program leaves its compiler in a
state in which the process crashes when it ends. So Ctrl-C raises nothing there. In a user's own
process (`interruptible`, `outside_of_jax`) the exception comes as soon as it is safe. In the
command `nestedvi` (`listen`) a thread of its own hears Ctrl-C at once, whatever the main thread is
doing, and ends the process where nothing is left to save. It refuses to know what is saved.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

__all__ = ["EXIT_CODE", "Asked", "interruptible", "keeping", "leave", "listen", "outside_of_jax"]

EXIT_CODE = 130
# How long work that must be saved may take to come to an end.
_PATIENCE = 30.0
_AGAIN, _LAST_WORD = 0.05, 2.0


class Asked:
    """Whether Ctrl-C was pressed. `unsaved` says that there is something to wait for: whoever
    listens keeps it true."""

    def __init__(self) -> None:
        self.unsaved = False
        self._event = threading.Event()

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()


class _Listener:
    """The thread of the command that hears Ctrl-C."""

    def __init__(self, say: Callable[[str], None]):
        self._say = say
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        self.pressed = False
        self._thread = threading.Thread(target=self._run, name="ctrl-c", daemon=True)

    def start(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        # Python writes a byte when the signal comes, also while the main thread is in native code.
        self._fd = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, lambda *_: None)
        self._thread.start()

    def stop(self) -> None:
        signal.set_wakeup_fd(self._fd)
        signal.signal(signal.SIGINT, self._before)
        self._sender.close()
        self._thread.join()
        self._receiver.close()

    def _heard(self, timeout: float | None) -> bool | None:
        """Whether Ctrl-C came within that time; None when nobody listens any more."""
        self._receiver.settimeout(timeout)
        try:
            while signals := self._receiver.recv(64):
                if signal.SIGINT in signals:
                    return True
        except TimeoutError:
            return False
        return None

    def _run(self) -> None:
        if not self._heard(None):
            return
        self.pressed = True
        for asked in list(_asked):
            asked.set()
        # Whoever saves says so in a sentence of its own and leaves; this is for when nobody does.
        end = time.monotonic() + (_PATIENCE if any(asked.unsaved for asked in _asked) else 0.0)
        while time.monotonic() < end:
            heard = self._heard(_AGAIN)
            if heard is None:
                return
            if heard:
                break
            if not any(asked.unsaved for asked in _asked):
                end = min(end, time.monotonic() + _LAST_WORD)
        leave(self._say, sentence())


_asked: list[Asked] = []
_kept: list[str] = []
_listener: _Listener | None = None
# Only the first to leave speaks.
_leaving = threading.Lock()


def sentence() -> str:
    """What there is to say when Ctrl-C ends the process."""
    return "; ".join(["stopped by Ctrl-C", *_kept[-1:]])


def leave(say: Callable[[str], None], message: str) -> None:
    """Says why, and ends the process at once with the exit code of Ctrl-C. The interpreter does not
    tidy up: files are whole at any time, and XLA may be at work.
    """
    with _leaving:
        say(message)
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is not None:
            for child in multiprocessing.active_children():
                with suppress(OSError, ValueError):
                    child.kill()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(EXIT_CODE)


@contextmanager
def listen(say: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C ends this process with one sentence, which `say` prints. What has unsaved work
    (`interruptible`) is asked to save first; a second Ctrl-C waits no longer.
    """
    global _listener
    if _listener is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    _listener = _Listener(say)
    _listener.start()
    try:
        yield
    finally:
        _listener.stop()
        _listener = None


@contextmanager
def keeping(what: str) -> Iterator[None]:
    """While this lasts, the message of a stop by Ctrl-C ends with `what`: where the work is
    kept.
    """
    _kept.append(what)
    try:
        yield
    finally:
        _kept.remove(what)


@contextmanager
def interruptible() -> Iterator[Asked]:
    """For a loop: Ctrl-C sets a flag instead of raising, so that no step is torn. A second one
    raises at once (and ends the command).
    """
    asked = Asked()
    if _listener is not None:
        _asked.append(asked)
        if _listener.pressed:
            asked.set()
        try:
            yield asked
        finally:
            _asked.remove(asked)
        return

    def handler(signum: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    with _handled_by(handler):
        yield asked


@contextmanager
def outside_of_jax() -> Iterator[None]:
    """Ctrl-C raises as usual, but not inside of JAX: there it waits until JAX returns. Where it is
    ignored it stays so.
    """
    if _listener is not None or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    main = threading.main_thread()

    def handler(signum: int, frame: FrameType | None) -> None:
        if not _inside_of_jax(frame):
            raise KeyboardInterrupt
        timer = threading.Timer(_AGAIN, signal.pthread_kill, (main.ident, signal.SIGINT))
        timer.daemon = True
        timer.start()

    with _handled_by(handler):
        yield


def _inside_of_jax(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(("jax.", "jaxlib.")):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Only the main thread may set handlers; elsewhere Ctrl-C is the main thread's business."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
