"""Several processes on one machine that run one program together, over localhost."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from nestedvi import distributed
from tests.helpers.one_of_several import everything, train

ROOT = Path(__file__).parents[1]
SECONDS = 900


def launch(num, task, folder, command=None):
    """`num` processes of `tests.helpers.one_of_several`, one device each."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = os.environ.get("XLA_FLAGS", "").split()
    flags = [flag for flag in flags if "device_count" not in flag]
    env = {**os.environ, "XLA_FLAGS": " ".join(flags)}
    env |= {"JAX_PLATFORMS": "cpu", "JAX_COORDINATOR_ADDRESS": address}
    env |= {"JAX_NUM_PROCESSES": str(num), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = command or [sys.executable, "-m", "tests.helpers.one_of_several", task, str(folder)]
    return [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**env, "JAX_PROCESS_ID": str(i)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(num)
    ]


def ends(processes):
    """Exit codes and what was written to standard error; none may be left behind."""
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], errors


def together(num, task, folder):
    codes, errors = ends(launch(num, task, folder))
    assert codes == [0] * num, "\n".join(errors)
    with np.load(folder / "results.npz") as values:
        return list(values.values())


def close(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("num", [2, 4])
def test_one_process_goes_on_where_several_stopped(num, tmp_path, compiled_once):
    """Processes train levels and particles, one device each, and write a checkpoint from all. What
    they recorded is the first half of what one records, which then does the other half.
    """
    half, never_stopped = together(num, "some", tmp_path), train(None, 6)
    for a, b in zip(half[-4:], never_stopped[-4:], strict=True):
        close([a], [b[:3]])
    close(train(tmp_path / "checkpoint", 6), never_stopped)


@pytest.mark.slow
@pytest.mark.parametrize("num", [2, 4])
def test_several_processes_give_what_one_gives(num, tmp_path):
    """Batches, restarts with a checkpoint, particles."""
    close(together(num, "every", tmp_path), everything(None))


def newest(folder):
    names = (path.name for path in (folder / "checkpoint").glob("*"))
    return max((int(name) for name in names if name.isdigit()), default=0)


def wait_for_a_checkpoint(folder, processes, after=0):
    began = time.monotonic()
    while newest(folder) <= after:
        assert time.monotonic() - began < SECONDS
        assert all(process.poll() is None for process in processes), ends(processes)
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_an_interrupt_of_one_ends_both_with_a_sentence(which, tmp_path):
    processes = launch(2, "endless", tmp_path)
    wait_for_a_checkpoint(tmp_path, processes)
    processes[which].send_signal(signal.SIGINT)
    codes, errors = ends(processes)
    assert 0 not in codes
    for error in errors:
        assert "stopped at step" in error
        assert "the same call goes on from there" in error
    # And so it does, in both.
    again, last = launch(2, "endless", tmp_path), newest(tmp_path)
    wait_for_a_checkpoint(tmp_path, again, after=last)
    again[0].kill()
    ends(again)


@pytest.mark.slow
def test_the_command_line_samples_together(tmp_path):
    """Only the first process prints, and the files are there."""
    program = "from nestedvi.cli.main import run; run()"
    arguments = ("sample", "ring", "--method", "smc", "--particles", "400", "--no-cache")
    out = ("--out", str(tmp_path / "out"), "--distributed")
    processes = launch(2, None, None, command=[sys.executable, "-c", program, *arguments, *out])
    said = [process.communicate(timeout=SECONDS)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert "log Z" in said[0] and said[1] == ""
    assert (tmp_path / "out" / "posterior.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_the_death_of_one_ends_the_other_with_a_sentence(which, tmp_path):
    processes = launch(2, "endless", tmp_path)
    wait_for_a_checkpoint(tmp_path, processes)
    processes[which].kill()
    codes, errors = ends(processes)
    assert 0 not in codes
    assert "lost another one" in errors[1 - which], errors[1 - which]
    assert "they go on from the last checkpoint" in errors[1 - which]


def test_one_process_is_the_first_and_agrees_with_itself():
    assert distributed.is_first()
    assert distributed.num_processes() == 1
    assert distributed.agree(True, 2.0) == (True, (2.0,))


def test_half_a_description_of_the_processes_is_refused(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    monkeypatch.delenv("JAX_PROCESS_ID", raising=False)
    with pytest.raises(ValueError, match="only some are set"):
        distributed.start()


def test_an_error_of_one_process_alone_stays_what_it_is():
    with (
        pytest.raises(jax.errors.JaxRuntimeError),
        distributed.one_sentence_if_lost("Start again."),
    ):
        raise jax.errors.JaxRuntimeError("out of memory")
