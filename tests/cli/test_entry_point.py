"""The entry point of the command: Ctrl-C is one sentence from its first line on."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
PROGRAM = """
import sys
print("began", flush=True)
from nestedvi_command import run
run()
"""


def test_an_interrupt_during_imports_is_one_sentence():
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "methods"],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == "Interrupted: stopped by Ctrl-C before anything was begun\n"


def test_the_entry_point_imports_nothing_heavy():
    """By itself it is the standard library's two modules that it names."""
    program = "import sys, nestedvi_command; print('jax' in sys.modules, 'nestedvi' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False False\n"


def test_the_command_is_that_entry_point_and_is_packaged():
    project = tomllib.loads((SRC.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"] == {"nestedvi": "nestedvi_command:run"}
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert "src/nestedvi_command.py" in packages
