"""The benchmark's assembly with made-up answers; one real answer on made-up data is a slow test."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest

from nestedvi.bench.posteriordb import run as bench
from nestedvi.bench.posteriordb.run import PosteriordbConfig, bench_posteriordb
from nestedvi.errors import DensityError
from nestedvi.grid.limited import Outcome
from nestedvi.inference.answer import Answer
from nestedvi.inference.posterior import make_posterior
from tests.helpers.stan_data import made_up_data

NAMES = ("sblri-blr", "arma-arma11", "kidiq-kidscore_momhs")
PARAMETERS = {
    "sblri-blr": ["beta[1]", "beta[2]", "beta[3]", "sigma"],
    "arma-arma11": ["mu"],
    "kidiq-kidscore_momhs": ["sigma"],
}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    moments = [0.5, 1.0, -1.0, 0.5, 2.0]
    references = {
        name: {"draws": 100, "reference": dict.fromkeys(PARAMETERS[name], moments)}
        for name in NAMES
    }
    (folder / "references.json").write_text(json.dumps(references))
    for name in NAMES:
        content = json.dumps(made_up_data(name.split("-")[0])).encode()
        (folder / f"{name.split('-')[0]}.json.gz").write_bytes(gzip.compress(content))
    return folder


@pytest.fixture
def asked(monkeypatch):
    """`sample` without sampling: one model is refused, one answers once; and jobs in this
    process."""
    models = []

    def sample(key, model, *, model_args):
        models.append(model.__name__)
        num = 200
        if model.__name__ == "arma11":
            raise DensityError("NaN came")
        if models.count("cauchy_noise_regression") == 2:
            raise DensityError("not again")
        rng = np.random.default_rng(0)
        samples = {"beta": rng.normal(0.5, 1, (num, 3)), "sigma": rng.normal(0.5, 1, num)}
        remarks = ("The prior of 'beta' is improper: so.", "Doubtful.")
        answer = Answer(np.zeros((num, 1)), np.zeros(num), -3.0, 0.01, num_batches=10)
        return make_posterior(samples, answer, remarks)

    def in_this_process(work, jobs, *, on_start, on_end, at_once, limit, within):
        for job in jobs:
            reported = []
            on_start(job.name)
            try:
                outcome = "done", work(*job.args, reported.append)
            except DensityError as error:
                outcome = "failed", f"DensityError: {error}"
            on_end(Outcome(job.name, *outcome, reported[-1] if reported else None, 1.0))

    monkeypatch.setattr(bench, "sample", sample)
    monkeypatch.setattr(bench, "run_limited", in_this_process)
    return models


def test_answers_refusals_and_what_is_kept(tmp_path, data, asked):
    config, out = PosteriordbConfig(posteriors=NAMES), tmp_path / "out"
    rows = bench_posteriordb(config, out, data_dir=data)["rows"]
    assert [row["posterior"] for row in rows] == list(NAMES)
    assert [row["state"] for row in rows] == ["answered", "refused", "answered"]
    assert rows[0]["first"]["log_Z"] == -3.0 and rows[0]["second"]["cpu_seconds"] >= 0
    assert rows[0]["first"]["diagnosis"] == ["Doubtful."]
    assert rows[1]["refusal"] == "DensityError: NaN came"
    assert rows[2]["first"]["log_Z"] is None, "an improper prior has no evidence"
    assert rows[2]["second"] == {"refusal": "DensityError: not again"}
    assert abs(rows[0]["first"]["worst_off_in_sds"]) < 0.3
    written = json.loads((out / "posteriordb.json").read_text())
    assert len(written["rows"]) == 3 and {"command", "versions", "device"} <= written.keys()
    assert (out / "posteriordb.png").stat().st_size > 1000
    assert "2 of 3 answered" in (out / "posteriordb.md").read_text()
    before = len(asked)
    bench_posteriordb(config, out, data_dir=data)
    assert asked[before:] == ["arma11"], "answers are read back, what was refused is tried again"


def test_rows_from_processes_that_were_stopped():
    reported = {"log_Z": 1.0}
    assert bench.row_of(Outcome("arK-arK", "stopped", None, reported, 5.0))["first"] == reported
    row = bench.row_of(Outcome("arK-arK", "stopped", None, None, 5.0))
    assert (row["state"], row["refusal"]) == ("stopped", "no answer within 5 s")
    assert bench.row_of(Outcome("arK-arK", "died", "lost", None, 5.0))["state"] == "refused"


@pytest.mark.parametrize(
    ("given", "said"), [({"posteriors": ("arK",)}, "arK-arK"), ({"limit": 0.0}, "above zero")]
)
def test_what_is_wrong_is_said(given, said):
    with pytest.raises(ValueError, match=said):
        PosteriordbConfig(**given)


# A number that is summed by two threads is rounded otherwise than by one, so an answer to compare
# with is computed on one core too, in a process that knows nothing of the benchmark's.
ALONE = """
import json, os, sys
from pathlib import Path
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax
jax.config.update("jax_platforms", "cpu")
from nestedvi.bench.posteriordb.run import answer_posterior
from nestedvi.storage.files import to_json
print(to_json(answer_posterior("sblri-blr", 0, Path(sys.argv[1]), 0)))
"""


@pytest.mark.slow
def test_a_real_answer_in_a_process(tmp_path, data):
    """Coefficients of a regression on made-up data: the reference is least squares' own. The
    benchmark's answer is the one that the same call gives without the benchmark, to the last bit.
    """
    x, y = (np.asarray(made_up_data("sblri")[name]) for name in ("X", "y"))
    precision = x.T @ x
    mean, cov = np.linalg.solve(precision, x.T @ y), np.linalg.inv(precision)
    alone = subprocess.run(
        [sys.executable, "-c", ALONE, str(data)], capture_output=True, text=True, check=True
    )
    row = json.loads(alone.stdout)
    for i in range(3):
        found = row["parameters"][f"beta[{i + 1}]"]
        assert abs(found["mean"] - mean[i]) < 0.3 * np.sqrt(cov[i, i])
    config = PosteriordbConfig(posteriors=("sblri-blr",), limit=300.0)
    (apart,) = bench_posteriordb(config, tmp_path / "out", data_dir=data)["rows"]
    assert apart["state"] == "answered"
    for name in ("log_Z", "log_Z_stderr", "ess", "khat", "parameters"):
        assert apart["first"][name] == row[name], name
