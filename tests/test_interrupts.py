"""Ctrl-C: it asks what has something to save, never raises inside of JAX, and ends the command with
one sentence.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import nestedvi.interrupts as interrupts
from nestedvi.interrupts import interruptible, keeping, leave, listen, outside_of_jax


def press():
    signal.raise_signal(signal.SIGINT)


def test_the_first_interrupt_asks_and_the_second_insists():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible() as asked:
        assert not asked.is_set()
        press()
        assert asked.is_set()
        press()
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_work_without_signals():
    """Only the main thread may touch handlers; elsewhere work simply is not interruptible."""
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with interruptible() as asked, outside_of_jax():
            seen.append((asked.is_set(), signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, True)]


def test_an_interrupt_inside_of_jax_comes_when_jax_returns():
    """Pressed while a function is traced: the trace ends, and the exception comes after it."""
    seen = []

    def traced(x):
        press()
        seen.append("traced")
        return x + 1

    with pytest.raises(KeyboardInterrupt), outside_of_jax():
        jax.make_jaxpr(traced)(jnp.zeros(2))
        seen.append("returned")
        time.sleep(10)
    assert seen == ["traced", "returned"]


def test_what_ignores_interrupts_goes_on_to():
    """A process of a grid leaves Ctrl-C to the grid."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with outside_of_jax():
            press()
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_outside_of_jax_comes_at_once():
    with pytest.raises(KeyboardInterrupt), outside_of_jax():
        press()
        raise AssertionError("not interrupted")


class Left(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def command(monkeypatch):
    """A listener whose process does not end: what it said, and an event for its end."""
    words, over = [], threading.Event()

    def end(code):
        words.append(code)
        over.set()
        raise Left

    monkeypatch.setattr(interrupts.os, "_exit", end)
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    with listen(words.append):
        yield words, over


def test_the_command_ends_at_once_where_nothing_is_to_be_saved(command):
    words, over = command
    with keeping("there it goes on"), interruptible() as asked:
        press()
        assert over.wait(5) and asked.is_set()
    assert words == ["stopped by Ctrl-C; there it goes on", 130]


def test_the_command_waits_for_what_is_unsaved(command, monkeypatch):
    """Until it is saved, and whoever saved speaks for itself."""
    words, over = command
    with interruptible() as asked:
        asked.unsaved = True
        press()
        assert not over.wait(0.3) and asked.is_set()
    with pytest.raises(Left):
        leave(words.append, "saved step 3")
    assert words == ["saved step 3", 130]


def test_a_second_interrupt_waits_no_longer(command):
    words, over = command
    with interruptible() as asked:
        asked.unsaved = True
        press()
        assert not over.wait(0.2)
        press()
        assert over.wait(5)
    assert words == ["stopped by Ctrl-C", 130]


def test_patience_ends(command, monkeypatch):
    monkeypatch.setattr(interrupts, "_PATIENCE", 0.2)
    words, over = command
    with interruptible() as asked:
        asked.unsaved = True
        press()
        assert over.wait(5)
    assert words == ["stopped by Ctrl-C", 130]


def test_work_that_begins_after_an_interrupt_is_asked_too(command):
    with interruptible() as first:
        first.unsaved = True
        press()
        while not first.is_set():
            time.sleep(0.01)
        with interruptible() as second:
            assert second.is_set()


def test_listening_ends_without_a_trace():
    handler = signal.getsignal(signal.SIGINT)
    threads = threading.active_count()
    with listen(print), listen(print):
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads
    assert signal.getsignal(signal.SIGINT) is handler
    with pytest.raises(KeyboardInterrupt):
        press()


def test_native_code_does_not_keep_the_command_from_ending(tmp_path):
    """A main thread that never returns to Python: the sentence and the exit code come at once."""
    program = """
import ctypes, importlib.util, sys
spec = importlib.util.spec_from_file_location("interrupts", sys.argv[1])
interrupts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(interrupts)
with interrupts.listen(lambda text: print(text, file=sys.stderr)):
    print("ready", flush=True)
    while True:
        ctypes.CDLL(None).pause()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(Path(interrupts.__file__))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (130, "stopped by Ctrl-C\n")
