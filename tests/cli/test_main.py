"""The command as a whole: its errors, warnings and interrupts, and what it imports when it
starts.
"""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import nestedvi as nvi
import nestedvi.paper.annealing.demo as demo_module
from tests.helpers.command_line import one_sentence

SRC = Path(__file__).parents[2] / "src"


def test_an_interrupt_outside_training_is_still_an_interrupt(monkeypatch, command):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_module, "run_demo", stop)
    assert command("demo") == (130, "", "Interrupted: stopped by Ctrl-C\n")


def test_warnings_are_one_line(monkeypatch, command):
    def warn(*arguments, **options):
        warnings.warn("k̂ = 0.9 [odd]", nvi.NestedviWarning, stacklevel=2)
        return {}

    monkeypatch.setattr(demo_module, "run_demo", warn)
    code, _, stderr = command("demo", "--json")
    assert (code, stderr) == (0, "warning: k̂ = 0.9 [odd]\n")


@pytest.mark.parametrize(
    "arguments", [("dmeo",), ("demo", "--stpes", "3"), ("demo", "--steps", "many"), ("bench",), ()]
)
def test_wrong_usage_says_how_to_use_it(command, arguments):
    code, stdout, stderr = command(*arguments)
    assert code == 2 and "Traceback" not in stderr
    assert "Usage:" in stdout + stderr


def test_distributed_is_for_sampling(command):
    code, _, stderr = command("demo", "--distributed")
    assert code == 1 and "--jobs" in one_sentence(stderr)


def test_distributed_may_stand_anywhere(command, monkeypatch):
    """With one description missing, so that it fails before anything is started."""
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    monkeypatch.delenv("JAX_PROCESS_ID", raising=False)
    for arguments in (("sample", "ring", "--distributed"), ("--distributed", "sample", "ring")):
        code, _, stderr = command(*arguments)
        assert code == 1 and "JAX_PROCESS_ID" in one_sentence(stderr)


def test_a_lost_process_is_one_sentence(monkeypatch, command):
    def lose(*arguments, **options):
        raise nvi.errors.LostProcessError("Process 0 of 2 lost another one.")

    monkeypatch.setattr(demo_module, "run_demo", lose)
    assert command("demo") == (1, "", "error: Process 0 of 2 lost another one.\n")


def test_help_through_the_entry_point(command):
    code, stdout, _ = command("--help")
    assert code == 0 and "demo" in stdout


def test_an_expected_failure_in_a_real_process(tmp_path):
    program = "from nestedvi.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program, "bench", "step", "--method", "nvir-sta"],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert "Did you mean 'nvir-star'?" in one_sentence(done.stderr)


def in_a_process(*arguments, module=False, **environment):
    program = ["-m", "nestedvi"] if module else ["-c", "from nestedvi.cli.main import run; run()"]
    return subprocess.run(
        [sys.executable, *program, *arguments],
        env={**os.environ, "PYTHONPATH": str(SRC), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_version(command):
    assert command("--version") == (0, f"nestedvi {nvi.__version__}\n", "")


@pytest.mark.slow
def test_a_shell_can_ask_for_completions():
    def completions(line):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        done = in_a_process(_NESTEDVI_COMPLETE="complete_bash", **words)
        return done.stdout.split()

    assert completions("nestedvi sa") == ["sample"]
    assert completions("nestedvi sample --method nvir-star-l") == ["nvir-star-langevin"]


def test_starting_imports_no_experiment():
    """What commands need is imported when they run: the app adds nothing to `import nestedvi`."""
    program = """
import sys
import nestedvi
before = set(sys.modules)
import nestedvi.cli.main
print(*(name for name in set(sys.modules) - before if name.startswith(("nestedvi.", "matplotlib"))))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {name.split(".")[1] for name in done.stdout.split()} == {"cli"}
