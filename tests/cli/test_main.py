"""The command: what it prints, what it writes, and how it fails."""

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import nestedvi as nvi
import nestedvi.bench.step as bench_module
import nestedvi.paper.annealing.demo as demo_module
from nestedvi.cli.main import app

SRC = Path(__file__).parents[2] / "src"
RUNNER = CliRunner(env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})


def one_sentence(stderr):
    """The message of an expected failure: a line on standard error and no traceback."""
    lines = stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and "Traceback" not in stderr, stderr
    return lines[0]


def commands(group=None, path=()):
    """Every command of the app with the names that lead to it."""
    group = typer.main.get_command(app) if group is None else group
    yield path, group
    for name, child in getattr(group, "commands", {}).items():
        yield from commands(child, (*path, name))


@pytest.mark.parametrize(
    ("path", "group"),
    list(commands()),
    ids=lambda x: "-".join(x) or "nestedvi" if type(x) is tuple else "",
)
def test_help_mentions_everything(path, group):
    result = RUNNER.invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    options = [option for parameter in group.params for option in parameter.opts]
    assert options or getattr(group, "commands", None)
    for name in [*options, *getattr(group, "commands", {})]:
        assert name in result.output


def test_methods_are_listed():
    result = RUNNER.invoke(app, ["methods"])
    assert result.exit_code == 0
    first_words = {line.split()[0] for line in result.output.splitlines() if line.split()}
    assert set(nvi.METHODS) <= first_words


def test_methods_as_json():
    rows = json.loads(RUNNER.invoke(app, ["methods", "--json"]).output)["rows"]
    assert [row["id"] for row in rows] == list(nvi.METHODS)
    by_id = {row["id"]: row for row in rows}
    assert by_id["nvir-star"] == {
        "id": "nvir-star",
        "label": "NVIR*",
        "path": "learned",
        "kernels": "gaussian",
        "resampling": "always",
        "scheme": "systematic",
        "minimises": "reverse-kl",
        "weights": "normalised",
        "learns": ["q", "r", "γ"],
        "about": nvi.METHODS["nvir-star"].about,
    }
    assert (
        by_id["smc-random-walk"]["resampling"] == "ESS < 50%"
        and by_id["smc-random-walk"]["learns"] == []
    )


ANNOUNCE = """
import contextlib
import nestedvi.train.loop as loop_module
original = loop_module._interruptible

@contextlib.contextmanager
def announced():
    with original() as asked:
        print("training", flush=True)
        yield asked

loop_module._interruptible = announced
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


def test_an_interrupt_outside_training_is_still_an_interrupt(monkeypatch, command):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_module, "run_demo", stop)
    assert command("demo") == (130, "", "Interrupted: stopped by Ctrl-C\n")


def test_warnings_are_one_line(monkeypatch, command):
    def warn(*arguments, **options):
        warnings.warn("k̂ = 0.9 [odd]", nvi.NestedviWarning, stacklevel=2)
        return RESULT

    monkeypatch.setattr(demo_module, "run_demo", warn)
    code, _, stderr = command("demo")
    assert (code, stderr) == (0, "warning: k̂ = 0.9 [odd]\n")


def test_a_folder_that_cannot_be_written_is_one_sentence(command, tmp_path):
    (tmp_path / "[file]").write_text("in the way")
    code, stdout, stderr = command("demo", "--out", tmp_path / "[file]" / "below")
    assert code == 1 and stdout == ""
    assert "Cannot write to the output folder" in one_sentence(stderr) and "[file]/below" in stderr


def test_a_checkpoint_of_another_run_is_one_sentence(command, tmp_path):
    """Other files in the checkpoint's place: nothing is overwritten."""
    (tmp_path / "checkpoint").write_text("mine")
    code, _, stderr = command("demo", "--out", tmp_path, "--steps", "3")
    assert code == 1 and "Cannot write checkpoints to" in one_sentence(stderr)
    assert (tmp_path / "checkpoint").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench", "step", "--method", "nvir-sta"), "Did you mean 'nvir-star'?"),
        (("bench", "step", "--order", "two-fase"), "Did you mean 'two-phase'?"),
        (("bench", "step", "--method", "smc-random-walk"), "SMC learns nothing"),
        (("bench", "step", "--levels", "1"), "at least 2 levels"),
        (("bench", "step", "--steps", "0"), "1 to 512 steps"),
    ],
)
def test_wrong_arguments_are_one_sentence(command, arguments, said):
    code, stdout, stderr = command(*arguments)
    assert code == 1 and stdout == ""
    assert said in one_sentence(stderr)


@pytest.mark.parametrize(
    "arguments", [("dmeo",), ("demo", "--stpes", "3"), ("demo", "--steps", "many"), ("bench",), ()]
)
def test_wrong_usage_says_how_to_use_it(command, arguments):
    code, stdout, stderr = command(*arguments)
    assert code == 2 and "Traceback" not in stderr
    assert "Usage:" in stdout + stderr


def test_help_through_the_entry_point(command):
    code, stdout, _ = command("--help")
    assert code == 0 and "demo" in stdout


def test_the_bench_as_json(command):
    code, stdout, stderr = command(
        "bench", "step", "--method", "nvi", "--levels", 2, "--particles", 4, "--steps", 2, "--json"
    )
    assert code == 0, stderr
    result = json.loads(stdout)
    assert {"step_seconds_median", "compile_seconds", "xla_temp_bytes"} <= result.keys()
    assert result["method"] == "nvi" and result["levels"] == 2 and result["step_seconds_median"] > 0


def test_the_bench_as_a_table(command, monkeypatch):
    times = {f"step_seconds_{name}": 2e-4 for name in ("median", "min", "max")}
    result = {**times, "compile_seconds": 1.5, "xla_temp_bytes": 12345, "parameter_bytes": 678}
    monkeypatch.setattr(bench_module, "bench_step", lambda config: result)
    code, stdout, _ = command("bench", "step", "--levels", "4")
    assert code == 0
    for piece in ("nvir-star, K = 4", "200 µs", "1.50 s", "12,345 bytes", "678 bytes"):
        assert piece in stdout


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


def test_reproduce_refuses_what_it_does_not_know(tmp_path):
    for arguments, hint in (
        (["--methods", "nvri"], "nvir"),
        (["--order", "sequental"], "sequential"),
        (["--levels", "x"], "whole number"),
    ):
        result = RUNNER.invoke(
            app, ["reproduce", "annealing", "--out", str(tmp_path / "out"), *arguments]
        )
        assert result.exit_code == 1 and hint in str(result.exception)
    assert not (tmp_path / "out").exists(), (
        "nothing is written before the arguments are known to be good"
    )


def test_reproduce_passes_its_options_on(tmp_path, monkeypatch):
    import nestedvi.paper.annealing.run as annealing

    seen = {}

    def fake(config, out, *, jobs, console):
        seen.update(config=config, jobs=jobs)
        (tmp_path / "table.md").write_text("the table")

    monkeypatch.setattr(annealing, "reproduce_annealing", fake)
    options = [
        "--methods",
        "avo,nvi",
        "--levels",
        "4,8",
        "--restarts",
        "3",
        "--iterations",
        "50",
        "--seed",
        "5",
        "--jobs",
        "2",
    ]
    result = RUNNER.invoke(
        app, ["reproduce", "annealing", *options, "--order", "two-phase", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0 and "the table" in result.stdout
    config = seen["config"]
    assert (config.methods, config.levels, config.restarts, config.iterations) == (
        ("avo", "nvi"),
        (4, 8),
        3,
        50,
    )
    assert (config.seed, config.order, seen["jobs"]) == (5, "two-phase", 2)
    assert (
        RUNNER.invoke(app, ["reproduce", "annealing", "--quick", "--out", str(tmp_path)]).exit_code
        == 0
    )
    assert seen["config"].iterations < 20_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rows", "gmm,nueral"), "Did you mean 'neural'?"),
        (("--instances", "5"), "at most 5"),
        (("--iterations", "0"), "at least 1"),
    ],
)
def test_wrong_arguments_of_the_hmm_are_one_sentence(command, tmp_path, arguments, said):
    """Refused before anything is written."""
    code, stdout, stderr = command("reproduce", "hmm", "--out", tmp_path / "out", *arguments)
    assert code == 1 and stdout == "" and said in one_sentence(stderr)
    assert not (tmp_path / "out").exists()
