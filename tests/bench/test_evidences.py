"""Two ways of one evidence: NUTS and the bridge on a closed form, the assembly with made-up
answers.
"""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.bench import evidences as bench
from nestedvi.bench.evidences import (
    EvidencesConfig,
    bench_evidences,
    bridge_log_Z,
    evidences_table,
)
from nestedvi.grid.limited import Outcome


@pytest.mark.slow
def test_nuts_and_a_bridge_give_a_closed_form(x64):
    """Three coordinates of logistic densities, scaled: Z = e²."""

    def log_gamma(z):
        return jnp.sum(-z - 2 * jnp.logaddexp(0.0, -z)) + 2.0

    found = bridge_log_Z(0, log_gamma, np.zeros(3), 1000)
    assert abs(found["log_Z"] - 2) < 4 * found["stderr"] < 0.1
    assert found["diverging"] == 0 and 0.99 < found["rhat"] < 1.02


def test_both_ways_are_kept_and_a_failure_is_a_sentence(tmp_path, monkeypatch):
    asked = []

    def auto(name, data_dir, seed):
        asked.append(name)
        return {"log_Z": 2.0, "log_Z_stderr": 0.03, "khat": 0.1, "diagnosis": []}

    def double(name, data_dir, seed, draws):
        if name == "ring":
            raise FloatingPointError("NUTS was lost")
        return {"log_Z": 2.2, "stderr": 0.04, "iterations": 4, "diverging": 0, "rhat": 1.0}

    def in_this_process(work, jobs, *, on_end, at_once, limit, within):
        for job in jobs:
            on_end(Outcome(job.name, "done", work(*job.args, lambda row: None), None, 1.0))

    monkeypatch.setattr(bench, "_by_auto", auto)
    monkeypatch.setattr(bench, "_in_double", double)
    monkeypatch.setattr(bench, "run_limited", in_this_process)
    config = EvidencesConfig(problems=("funnel", "ring"))
    rows = bench_evidences(config, tmp_path)["rows"]
    assert [row["problem"] for row in rows] == ["funnel", "ring"]
    assert rows[1]["bridge"]["why"] == "FloatingPointError: NUTS was lost"
    text = (tmp_path / "evidences.md").read_text()
    assert "| funnel | 2.0000 ± 0.0300 | 2.2000 ± 0.0400 | -4.0 |" in text
    assert "| ring | 2.0000 ± 0.0300 | – | – |" in text
    assert json.loads((tmp_path / "evidences.json").read_text())["rows"][0]["auto"]["log_Z"] == 2
    bench_evidences(config, tmp_path)
    assert asked == ["funnel", "ring"], "what is done is read back"


def test_what_was_stopped_has_a_line():
    assert "| garch-garch11 | – | – | – |" in evidences_table([{"problem": "garch-garch11"}])


@pytest.mark.parametrize(
    ("given", "said"),
    [({"problems": ("garch-garch11",)}, "Known: "), ({"draws": 10}, "hundred draws")],
)
def test_what_is_wrong_is_said(given, said):
    """A posterior with an improper prior has no evidence."""
    with pytest.raises(ValueError, match=said):
        EvidencesConfig(**given)


def test_all_proper_posteriors_are_asked_for_by_default():
    assert len(EvidencesConfig().names) == 14


def test_rhat_sees_chains_apart():
    rng = np.random.default_rng(0)
    together = rng.normal(size=(8, 500, 1))
    apart = together + np.repeat([[[0.0]], [[2.0]]], 4, axis=0)
    assert bench._rhat(together).max() < 1.02 < 1.3 < bench._rhat(apart).max()
