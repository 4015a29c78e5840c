"""Processes with a limit: results, errors, what was reported before a stop, and cores."""

import os
import time

import pytest

from nestedvi.grid.limited import Job, run_limited


def work(what, number, report):
    if what == "fail":
        raise ValueError(f"no {number}")
    if what == "die":
        os._exit(3)
    report(10 * number)
    if what == "sleep":
        time.sleep(60)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return number + 1, cores


@pytest.mark.slow
def test_every_job_ends_in_its_own_way():
    started, ended = [], []
    names = ["sleep", "answer"]
    jobs = [Job(what, (what, i)) for i, what in enumerate(names)]
    outcomes = run_limited(
        work, jobs, at_once=2, limit=4.0, on_start=started.append, on_end=ended.append
    )
    by_name = {outcome.name: outcome for outcome in outcomes}
    assert started == names and ended == outcomes
    assert by_name["answer"][1:4] == ("done", (2, 1), 10)
    assert by_name["sleep"][1:4] == ("stopped", None, 0)
    assert 4 <= by_name["sleep"].seconds < 50


@pytest.mark.slow
def test_what_does_not_begin_in_time_has_no_outcome():
    jobs = [Job("first", ("sleep", 1)), Job("second", ("answer", 2))]
    outcomes = run_limited(work, jobs, at_once=1, limit=60.0, within=1.0)
    assert [outcome[:2] for outcome in outcomes] == [("first", "stopped")]


@pytest.mark.slow
def test_a_process_that_is_lost_or_fails_has_an_outcome():
    jobs = [Job("a", ("die", 1)), Job("b", ("fail", 2))]
    lost, failed = run_limited(work, jobs, at_once=1, limit=60.0)
    assert lost[:2] == ("a", "died")
    assert failed[:4] == ("b", "failed", "ValueError: no 2", None)


@pytest.mark.slow
def test_an_interrupt_leaves_no_process():
    def interrupt(name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_limited(work, [Job("a", ("sleep", 1))] * 2, at_once=1, limit=0.1, on_end=interrupt)
