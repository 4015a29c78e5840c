"""Locks: one process at a time, named to the other; what a dead process left is taken over."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import nestedvi as nvi
from nestedvi.storage.locks import Lock, locked

SRC = Path(__file__).parents[2] / "src" / "nestedvi" / "storage" / "locks.py"
# The module by itself, with its one import stubbed: a process that starts in milliseconds.
PROGRAM = """
import runpy, sys, types
for name in ("nestedvi", "nestedvi.errors"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["nestedvi.errors"].CheckpointError = RuntimeError
from pathlib import Path
lock = runpy.run_path(sys.argv[1])["Lock"](Path(sys.argv[2]), "It")
print("held", flush=True)
sys.stdin.read()
"""


def holder(path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(SRC), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_is_named_and_taken_over_when_it_is_dead(tmp_path):
    path = tmp_path / ".lock"
    process = holder(path)
    try:
        with pytest.raises(
            nvi.errors.CheckpointError,
            match=f"The folder is in use by process {process.pid}. Wait until it ends",
        ):
            Lock(path, "The folder")
    finally:
        process.kill()
        process.communicate()
    assert path.exists()
    with locked(path, "The folder"):
        assert f'"pid": {os.getpid()}' in path.read_text()
    assert not path.exists()


def test_one_process_does_not_take_its_own_lock_twice(tmp_path):
    with (
        locked(tmp_path / ".lock", "It"),
        pytest.raises(nvi.errors.CheckpointError, match="in use by this process"),
    ):
        Lock(tmp_path / ".lock", "It")
    with locked(tmp_path / ".lock", "It"):
        pass


@pytest.mark.parametrize("note", ["", "{", '{"pid": "x"}', '{"pid": 7, "host": "elsewhere"}'])
def test_a_note_that_cannot_be_read_is_another_process(tmp_path, note):
    path = tmp_path / ".lock"
    lock = Lock(path, "It")
    path.write_text(note)
    owner = "process 7 on elsewhere" if "elsewhere" in note else "another process"
    with pytest.raises(nvi.errors.CheckpointError, match=f"in use by {owner}"):
        Lock(path, "It")
    lock.release()


def test_a_lock_is_never_held_twice_while_files_come_and_go(tmp_path):
    """Threads that take and release it as fast as they can: never two at a time."""
    inside, most, done = [], [], []

    def work():
        for _ in range(200):
            try:
                with locked(tmp_path / ".lock", "It"):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    done.append(1)
            except nvi.errors.CheckpointError:
                continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1 and len(done) > 10
