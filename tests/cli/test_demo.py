"""`nestedvi demo`: what it prints and writes, Ctrl-C, and folders that are in the way."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import nestedvi.paper.annealing.demo as demo_module
from tests.helpers.command_line import one_sentence

SRC = Path(__file__).parents[2] / "src"

ANNOUNCE = """
import time
import nestedvi.train.loop as loop_module
original = loop_module._check_streak

def announced(*args):
    print("training", flush=True)
    time.sleep(0.5)
    original(*args)

loop_module._check_streak = announced
from nestedvi.cli.main import run
run()
"""
DEMO = ("demo", "--steps", "24", "--seed", "3")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A demo in a process of its own that got Ctrl-C while it trained: exit code, standard error,
    folder.
    """
    folder = tmp_path_factory.mktemp("demo")
    environment = {**os.environ, "PYTHONPATH": str(SRC), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", ANNOUNCE, *DEMO, "--out", str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line == "training\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, stderr, folder


@pytest.mark.slow
def test_interrupting_the_demo_saves(interrupted):
    code, stderr, folder = interrupted
    assert code == 130
    assert "Interrupted: stopped at step 8 of 24" in stderr and "Traceback" not in stderr
    assert [p.name for p in folder.iterdir()] == ["checkpoint"]
    assert (folder / "checkpoint" / "8").is_dir()


@pytest.mark.slow
def test_the_same_command_goes_on_and_finishes(interrupted, command):
    *_, folder = interrupted
    code, stdout, _ = command(*DEMO, "--out", folder, "--json")
    assert code == 0
    printed, written = json.loads(stdout), json.loads((folder / "demo.json").read_text())
    assert printed == written
    assert sorted(p.name for p in folder.iterdir()) == ["demo.json", "demo.png"]
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert {"log_Z", "log_Z_stderr", "ess_percent", "versions", "device"} <= written.keys()
    assert written["seed"] == 3 and written["config"]["num_steps"] == 24
    assert len(written["mode_shares"]) == 8 and abs(sum(written["mode_shares"]) - 1) < 1e-5
    assert written["command"] == f"nestedvi demo --steps 24 --seed 3 --out {folder.name} --json"


RESULT = {
    "config": {"num_levels": 8},
    "log_Z": 2.07,
    "log_Z_stderr": 0.003,
    "log_Z_true": 2.0794,
    "lower_bound": 2.05,
    "lower_bound_stderr": 0.01,
    "upper_bound": 2.09,
    "upper_bound_stderr": 0.01,
    "ess_percent": 96.5,
    "num_particles": 1000,
    "mode_shares": [0.125] * 8,
    "train_seconds": 12.3,
}


def test_the_demo_prints_a_table(monkeypatch, command):
    """The numbers of a run, as a person reads them; a folder's brackets are no markup."""
    monkeypatch.setattr(demo_module, "run_demo", lambda config, out, progress: RESULT)
    code, stdout, stderr = command("demo", "--out", "my[red]folder")
    assert code == 0, stderr
    said = (
        "2.0700 ± 0.0030",
        "true 2.0794",
        "lower 2.0500 ± 0.0100, upper 2.0900 ± 0.0100",
        "96.5 % of 1000 particles",
        "12.3 s",
    )
    for piece in (*said, "Wrote my[red]folder/demo.json and my[red]folder/demo.png"):
        assert piece in stdout


def test_a_folder_that_cannot_be_written_is_one_sentence(command, tmp_path):
    (tmp_path / "[file]").write_text("in the way")
    code, stdout, stderr = command("demo", "--out", tmp_path / "[file]" / "below")
    assert code == 1 and stdout == ""
    assert "Cannot write to the output folder" in one_sentence(stderr) and "[file]/below" in stderr


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_one_sentence(command, tmp_path):
    """Other files in the checkpoint's place: nothing is overwritten."""
    (tmp_path / "checkpoint").write_text("mine")
    code, _, stderr = command("demo", "--out", tmp_path, "--steps", "3")
    assert code == 1 and "Cannot write checkpoints to" in one_sentence(stderr)
    assert (tmp_path / "checkpoint").read_text() == "mine"
