"""Two ways of one evidence, assembled from made-up answers."""

import json

import numpy as np
import pytest

from nestedvi.bench import evidences as bench
from nestedvi.bench.evidences import (
    EvidencesConfig,
    bench_evidences,
    evidences_table,
)
from nestedvi.grid.limited import Outcome


@pytest.fixture
def asked(monkeypatch):
    """Both ways made up, in this process; the bridge fails on the ring, and time is up before
    anything that `too_late` names.
    """
    calls = []

    def auto(name, data_dir, seed, repeat):
        calls.append((name, "auto"))
        return {"log_Z": 2.0, "stderr": 0.03, "khat": 0.1, "diagnosis": []}

    def bridge(name, data_dir, seed, draws):
        calls.append((name, "bridge"))
        if name == "ring":
            raise FloatingPointError("NUTS was lost")
        return {"log_Z": 2.2, "stderr": 0.04, "iterations": 4, "diverging": 0, "rhat": 1.0}

    def in_this_process(work, jobs, *, on_end, at_once, limit, within):
        for job in jobs:
            if any(late in job.name for late in calls_too_late):
                continue
            try:
                outcome = "done", work(*job.args, lambda row: None)
            except FloatingPointError as error:
                outcome = "failed", f"FloatingPointError: {error}"
            on_end(Outcome(job.name, *outcome, None, 1.0))

    calls_too_late: list[str] = []
    monkeypatch.setattr(bench, "_by_auto", auto)
    monkeypatch.setattr(bench, "_by_bridge", bridge)
    monkeypatch.setattr(bench, "run_limited", in_this_process)
    return calls, calls_too_late


def test_both_ways_are_kept_and_a_failure_is_a_sentence(tmp_path, asked):
    calls, _ = asked
    config = EvidencesConfig(problems=("funnel", "ring"), repeats=1)
    rows = bench_evidences(config, tmp_path)["rows"]
    assert [row["problem"] for row in rows] == ["funnel", "ring"]
    assert rows[1]["bridge"]["why"] == "FloatingPointError: NUTS was lost"
    text = (tmp_path / "evidences.md").read_text()
    assert "| funnel | 2.0000 ± 0.0300 | 2.2000 ± 0.0400 | -4.0 |" in text
    assert "| ring | 2.0000 ± 0.0300 | – | – |" in text
    assert json.loads((tmp_path / "evidences.json").read_text())["rows"][0]["auto"]["log_Z"] == 2
    before = len(calls)
    bench_evidences(config, tmp_path)
    assert calls[before:] == [("ring", "bridge")], "answers are read back, failures tried again"
    bench_evidences(EvidencesConfig(problems=("funnel",), draws=200, repeats=1), tmp_path)
    assert calls[before + 1 :] == [("funnel", "bridge")], "auto has no part in the bridge's draws"


def test_a_run_without_time_keeps_what_was_there(tmp_path, asked):
    """A resumed run that begins nothing writes the same rows again."""
    _, too_late = asked
    config = EvidencesConfig(problems=("funnel", "two-moons"), repeats=1)
    too_late.append("two-moons")
    first = bench_evidences(config, tmp_path)["rows"]
    assert first[1]["auto"]["why"] == "not begun in the time given"
    too_late.append("funnel")
    assert bench_evidences(config, tmp_path)["rows"] == first
    assert json.loads((tmp_path / "evidences.json").read_text())["rows"][0]["auto"]["log_Z"] == 2


def test_a_way_answers_until_its_error_is_small_enough(tmp_path, asked):
    """.03 / √4 and .04 / √6 are the first below .017; what was kept counts when there is more."""
    calls, _ = asked
    few = EvidencesConfig(problems=("funnel",), stderr=0.017, repeats=3)
    (row,) = bench_evidences(few, tmp_path)["rows"]
    assert len(row["auto"]["answers"]) == len(row["bridge"]["answers"]) == 3
    config = EvidencesConfig(problems=("funnel",), stderr=0.017)
    (row,) = bench_evidences(config, tmp_path)["rows"]
    assert [len(row[way]["answers"]) for way in ("auto", "bridge")] == [4, 6]
    assert len(calls) == 10
    np.testing.assert_allclose(row["auto"]["stderr"], 0.015)
    np.testing.assert_allclose(row["bridge"]["log_Z"], 2.2)


def test_answers_together_have_the_mean_of_their_Z_and_an_error_from_their_scatter():
    near, far = ({"log_Z": x, "stderr": 0.01, "khat": k, "diagnosis": d} for x, k, d in NEAR_FAR)
    row = bench.together([near, far])
    np.testing.assert_allclose(row["log_Z"], np.log((1 + np.e) / 2))
    # The standard error of the mean of 1 and e, over that mean.
    np.testing.assert_allclose(row["stderr"], (np.e - 1) / (np.e + 1))
    assert row["khat"] == 0.4 and row["diagnosis"] == ["A.", "B."]
    assert row["answers"] == [[0.0, 0.01], [1.0, 0.01]]
    np.testing.assert_allclose(bench.together([near, near])["stderr"], 0.01 / np.sqrt(2))


def test_chains_that_do_not_agree_count_only_where_all_do_not():
    good, bad = (
        {"log_Z": x, "stderr": 0.01, "rhat": rhat} for x, rhat in ((0.0, 1.0), (9.0, 1.02))
    )
    row = bench.together([bad, good, good])
    assert (row["log_Z"], row["rhat"], row["left_out"]) == (0.0, 1.0, 1)
    assert row["answers"] == [[0.0, 0.01], [0.0, 0.01]]
    row = bench.together([bad])
    assert (row["log_Z"], row["rhat"], row["left_out"]) == (9.0, 1.02, 0)


NEAR_FAR = ((0.0, 0.4, ["A."]), (1.0, 0.2, ["A.", "B."]))


def test_ways_that_were_stopped_say_so(monkeypatch, tmp_path):
    def stopped(work, jobs, *, on_end, at_once, limit, within):
        for job in jobs:
            on_end(Outcome(job.name, "stopped", None, None, 5.0))

    monkeypatch.setattr(bench, "run_limited", stopped)
    (row,) = bench_evidences(EvidencesConfig(problems=("ring",)), tmp_path)["rows"]
    assert row["auto"] == row["bridge"] == {"log_Z": None, "why": "no answer within 5 s"}


def test_long_ones_go_first(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(bench, "_LONG", {("funnel", "bridge"): 3.0, ("two-moons", "auto"): 2.0})
    monkeypatch.setattr(
        bench, "run_limited", lambda work, jobs, **_: started.extend(job.name for job in jobs)
    )
    bench_evidences(EvidencesConfig(problems=("ring", "two-moons", "funnel")), tmp_path)
    assert started[:2] == ["evidence-funnel-bridge", "evidence-two-moons-auto"]


def test_the_list_of_long_ones_names_problems():
    assert all(name in bench.ALL and way in bench.WAYS for name, way in bench._LONG)


def test_what_was_stopped_has_a_line():
    assert "| garch-garch11 | – | – | – |" in evidences_table([{"problem": "garch-garch11"}])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"problems": ("garch-garch11",)}, "Known: "),
        ({"draws": 10}, "hundred draws"),
        ({"repeats": 0}, "repeats=0"),
    ],
)
def test_what_is_wrong_is_said(given, said):
    """A posterior with an improper prior has no evidence."""
    with pytest.raises(ValueError, match=said):
        EvidencesConfig(**given)


def test_all_proper_posteriors_and_sampled_targets_are_asked_for_by_default():
    """Each once; no target whose log Z is a closed form or a short quadrature."""
    names = EvidencesConfig().names
    assert len(set(names)) == len(names) == 14 + 9 + 2
    assert not {"ring", "funnel", "brownian"} & set(names)
