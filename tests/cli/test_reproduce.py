"""`nestedvi reproduce`: what reaches the experiments, and what is refused before they start."""

import pytest

from nestedvi.cli.main import app
from tests.helpers.command_line import RUNNER, one_sentence


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
