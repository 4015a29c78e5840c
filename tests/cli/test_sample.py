"""`nestedvi sample`: what it prints and writes, and every mistake in one sentence."""

import json
import sys

import numpy as np
import pytest
from scipy.special import betaln

from tests.helpers.html import numbers_of

MODEL = """
import neighbour
import numpyro
import numpyro.distributions as dist
import jax.numpy as jnp

def coin(flips, a=2.0):
    p = numpyro.sample("p", dist.Beta(a, neighbour.B))
    with numpyro.plate("rows", len(flips)):
        numpyro.sample("x", dist.Bernoulli(p), obs=flips)

def bell(z, loc=0.0):
    return -0.5 * jnp.sum((z - loc) ** 2)

def switch():
    numpyro.sample("on", dist.Bernoulli(0.5))
"""
FLIPS = np.array([1, 0, 1, 1, 1, 0])
EXACT = betaln(2 + 4, 1.5 + 2) - betaln(2, 1.5)
FAST = ("--method", "smc", "--particles", 400)


@pytest.fixture
def command(command, monkeypatch, tmp_path):
    """Runs the entry point in this process, in a folder with a model: exit code, standard output,
    standard error.
    """
    (tmp_path / "neighbour.py").write_text("B = 1.5\n")
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "broken.py").write_text("import json\nraise RuntimeError('half\\ndone')\n")
    (tmp_path / "flips.csv").write_text("flips\n" + "\n".join(map(str, FLIPS)) + "\n")
    np.savez(tmp_path / "flips.npz", flips=FLIPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nestedvi.cli.options.out_console.width", 200)

    def go(*arguments):
        result = command(*arguments)
        monkeypatch.delitem(sys.modules, "neighbour", raising=False)
        return result

    return go


@pytest.mark.slow
def test_a_numpyro_model_from_a_file(command, tmp_path):
    arviz = pytest.importorskip("arviz")
    code, stdout, stderr = command(
        "sample", "model.py:coin", "--data", "flips.csv", *FAST, "--out", "out", "--seed", 3
    )
    assert code == 0, stderr
    content = json.loads((tmp_path / "out" / "posterior.json").read_text())
    assert abs(content["log_Z"] - EXACT) < 4.5 * content["log_Z_stderr"] < 0.5
    assert f"log Z: {content['log_Z']:.4f} ± {content['log_Z_stderr']:.4f}" in stdout
    for said in (
        "ESS: ",
        "k̂: ",
        "diagnosis: nothing found wrong",
        "Wrote out/posterior.json",
        "out/posterior.nc",
    ):
        assert said in stdout
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "posterior.json",
        "posterior.nc",
        "posterior.png",
        "report.html",
    ]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert numbers_of(page) == content
    assert (tmp_path / "out" / "posterior.png").read_bytes().startswith(b"\x89PNG")
    data = arviz.from_netcdf(tmp_path / "out" / "posterior.nc")
    draws = data.posterior["p"].values.ravel()
    mean = content["sites"]["p"]["mean"]
    assert data.posterior.attrs["log_Z"] == content["log_Z"]
    # Systematic draws repeat the weighted mean up to a comb's tooth.
    assert abs(draws.mean() - mean) < 3 * content["sites"]["p"]["sd"] / np.sqrt(len(draws))


@pytest.mark.slow
def test_a_log_density_with_data_as_json(command):
    """exp(−|z − loc|²/2) in two dimensions: log Z = log 2π, the mean where the data say."""
    np.savez("place.npz", loc=np.array([3.0, -1.0]))
    code, stdout, stderr = command(
        "sample", "model.py:bell", "--dim", 2, "--data", "place.npz", *FAST, "--json"
    )
    assert code == 0, stderr
    content = json.loads(stdout)
    assert abs(content["log_Z"] - np.log(2 * np.pi)) < 4.5 * content["log_Z_stderr"] < 0.5
    for name, place in (("z[0]", 3.0), ("z[1]", -1.0)):
        assert abs(content["sites"][name]["mean"] - place) < 4.5 / np.sqrt(content["ess"])


def test_a_built_in_target_knows_its_truth_and_arviz_may_be_missing(command, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "arviz", None)
    code, stdout, _ = command("sample", "ring", *FAST)
    assert code == 0 and "(true 2.0794)" in stdout
    assert "No posterior.nc: ArviZ is not installed (pip install 'nestedvi[arviz]')" in stdout
    assert sorted(p.name for p in (tmp_path / "nestedvi-sample").iterdir()) == [
        "posterior.json",
        "posterior.png",
        "report.html",
    ]


MISTAKES = {
    "no file": (["nowhere.py:coin"], "There is no file nowhere.py"),
    "no name": (["model.py:cion"], "Unknown name in model.py 'cion'. Did you mean 'coin'?"),
    "which name": (["model.py"], "path/to/file.py:name; got 'model.py'"),
    "broken file": (
        ["broken.py:coin"],
        "broken.py failed when it was imported: RuntimeError: half",
    ),
    "not python": (["flips.csv:coin"], "its name must end in .py"),
    "unknown target": (["funel"], "Did you mean 'funnel'?"),
    "dim of a target": (["funnel", "--dim", "3"], "has dim = 10; got --dim 3"),
    "data of a target": (["funnel", "--data", "flips.csv"], "takes no data"),
    "no data file": (
        ["model.py:coin", "--data", "nothing.csv"],
        "There is no data file nothing.csv",
    ),
    "no data": (["model.py:coin"], "missing a required argument: 'flips'"),
    "other kind": (
        ["model.py:coin", "--data", "model.py"],
        "Data come as .npz or .csv; got model.py",
    ),
    "unknown method": (
        ["model.py:coin", "--data", "flips.csv", "--method", "smk"],
        "Did you mean 'smc'?",
    ),
    "discrete": (["model.py:switch"], "discrete latent sites"),
    "unknown data": (
        ["model.py:switch", "--data", "flips.npz"],
        "flips.npz holds 'flips', which model.py:switch does not take",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_sentence(command, case):
    arguments, said = MISTAKES[case]
    code, stdout, stderr = command("sample", *arguments)
    lines = stderr.strip().splitlines()
    assert code == 1 and stdout == ""
    assert len(lines) == 1 and lines[0].startswith("error: ") and said in lines[0], stderr
