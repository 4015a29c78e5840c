"""`nestedvi bench`: what it prints, and wrong arguments in one sentence."""

import json

import pytest

import nestedvi.bench.step as bench_module
from tests.helpers.command_line import one_sentence


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench", "step", "--method", "nvir-sta"), "Did you mean 'nvir-star'?"),
        (("bench", "step", "--order", "two-fase"), "Did you mean 'two-phase'?"),
        (("bench", "step", "--method", "smc-random-walk"), "SMC learns nothing"),
        (("bench", "step", "--levels", "1"), "at least 2 levels"),
        (("bench", "step", "--steps", "0"), "1 to 512 steps"),
        (("bench", "posteriordb", "--posteriors", "arK-arma"), "Did you mean 'arK-arK'?"),
        (("bench", "posteriordb", "--data-dir", "nowhere"), "holds no references.json"),
    ],
)
def test_wrong_arguments_are_one_sentence(command, arguments, said):
    code, stdout, stderr = command(*arguments)
    assert code == 1 and stdout == ""
    assert said in one_sentence(stderr)


@pytest.mark.slow
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


def test_the_bench_of_posteriordb_prints_its_table(command, monkeypatch, tmp_path):
    import nestedvi.bench.posteriordb.run as module

    def made_up(config, out, *, data_dir, jobs, console):
        (tmp_path / "posteriordb.md").write_text(f"{config.names[0]} {config.limit} {jobs}")

    monkeypatch.setattr(module, "bench_posteriordb", made_up)
    options = ("--posteriors", "garch-garch11", "--limit", "7", "--jobs", "3", "--out", tmp_path)
    code, stdout, _ = command("bench", "posteriordb", *options)
    assert code == 0 and "garch-garch11 7.0 3" in stdout
