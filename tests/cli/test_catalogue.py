"""`nestedvi methods` and `nestedvi targets`: the tables, and the same as JSON."""

import json

import nestedvi as nvi
from nestedvi.cli.main import app
from nestedvi.inference.sample import ABOUT, ANSWERS
from tests.helpers.command_line import RUNNER


def test_methods_are_listed():
    result = RUNNER.invoke(app, ["methods"])
    assert result.exit_code == 0
    first_words = {line.split()[0] for line in result.output.splitlines() if line.split()}
    assert {"auto", "smc", *nvi.METHODS} <= first_words


def test_tables_fit_80_columns(installed, command, monkeypatch):
    """No cell is cut or wrapped in the middle of a word, whatever the terminal."""
    monkeypatch.setattr("nestedvi.cli.options.out_console.width", 80)
    for name in ("methods", "targets", "doctor"):
        _, stdout, _ = command(name)
        assert "…" not in stdout and max(map(len, stdout.splitlines())) <= 80
    _, stdout, _ = command("methods")
    for row in json.loads(command("methods", "--json")[1])["rows"]:
        (line,) = (x for x in stdout.splitlines() if x.split()[:1] == [row["id"]])
        for column in ("path", "kernels", "resampling", "minimises"):
            assert row[column] in line


def test_methods_as_json():
    content = json.loads(RUNNER.invoke(app, ["methods", "--json"]).output)
    rows = content["rows"]
    assert content["ways"] == [{"id": name, "about": ABOUT[name]} for name in ANSWERS]
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


def test_targets_are_listed(command, monkeypatch):
    monkeypatch.setattr("nestedvi.cli.options.out_console.width", 200)
    code, stdout, _ = command("targets")
    assert code == 0
    for name, target in nvi.targets.TARGETS.items():
        line = next(line for line in stdout.splitlines() if line.split()[:1] == [name])
        log_Z = "–" if target.log_Z is None else f"{target.log_Z:.6g}"
        assert log_Z in line and str(target.dim) in line and target.source in line
    _, stdout, _ = command("targets", "--json")
    rows = json.loads(stdout)["rows"]
    assert [row["id"] for row in rows] == list(nvi.targets.TARGETS)
    assert rows[1] == {
        "id": "funnel",
        "dim": 10,
        "log_Z": 0.0,
        "source": "closed form",
        "about": "Neal's funnel",
    }
    assert {row["id"] for row in json.loads(stdout)["posteriors"]} == {
        name for name in nvi.targets.EVIDENCES if name not in nvi.targets.TARGETS
    }


def test_evidences_of_posteriors_are_listed(command, monkeypatch):
    """Also what no target has; here made up."""
    found = nvi.targets.Evidence(-12.25, 0.0042, (-12.2, 0.01), (-12.26, 0.005))
    monkeypatch.setattr(nvi.targets, "EVIDENCES", {"arK-arK": found})
    _, stdout, _ = command("targets")
    (line,) = (line for line in stdout.splitlines() if "arK-arK" in line)
    assert line.split() == ["arK-arK", "-12.25", "0.0042"]
