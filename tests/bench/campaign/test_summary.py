"""What counts as a failure, and what the counts add up to."""

import numpy as np
import pytest

from nestedvi.bench.campaign.summary import (
    ess_ratios,
    failed,
    failed_silently,
    summarise_campaign,
    summarise_target,
    warned_wrongly,
)


def row(error=0.0, stderr=0.01, diagnosis=(), **more):
    return {
        "target": "a",
        "method": "auto",
        "error": error,
        "stderr": stderr,
        "ess": 100.0,
        "diagnosis": list(diagnosis),
        "means": [],
        "log_Z_true": 0.0,
        "must_say": "",
        "seconds": 1.0,
        **more,
    }


REFUSED = {"target": "a", "method": "smc", "refused": "DensityError: no", "log_Z_true": 0.0}


@pytest.mark.parametrize(
    ("case", "is_failed", "is_silent", "is_warned"),
    [
        (row(0.09), False, False, False),
        (row(0.11), True, True, False),
        (row(-0.3, 0.1), False, False, False),
        (row(-0.5, 0.1, ["Doubt."]), True, False, False),
        (row(0.0, diagnosis=["Doubt."]), False, False, True),
        (row(float("nan")), True, True, False),
        (row(None, log_Z_true=None), True, True, False),  # improper, and no word
        (row(None, diagnosis=["It is improper."], log_Z_true=None), True, False, False),
        (row(0.0, diagnosis=["It is improper."], must_say="improper"), False, False, False),
        (row(0.0, must_say="improper"), False, True, False),
        (REFUSED, False, False, False),
    ],
)
def test_one_run(case, is_failed, is_silent, is_warned):
    assert (failed(case), failed_silently(case), warned_wrongly(case)) == (
        is_failed,
        is_silent,
        is_warned,
    )


def test_totals():
    rows = [row(0.01), row(-0.015), row(0.5), row(0.0, diagnosis=["Doubt."]), REFUSED]
    rows.append({**REFUSED, "log_Z_true": None})
    rows.append({"target": "b", "method": "auto", "skipped": "no data"})
    summary = summarise_campaign(rows)
    total = summary["all"]
    assert (total["targets"], total["runs"], total["silent"], total["failed"]) == (1, 6, 1, 1)
    assert (total["good"], total["good_warned"], total["good_warned_share"]) == (3, 1, 1 / 3)
    assert (total["refused_wrongly"], total["refused_rightly"]) == (1, 1)
    coverage = total["log_Z_coverage"]
    assert coverage["count"] == 3 and coverage["within_1"] == pytest.approx(1 / 3)
    assert coverage["within_2"] == pytest.approx(2 / 3)
    assert set(summary["methods"]) == {"auto", "smc"} and len(summary["cells"]) == 3
    cell = summarise_target(rows[:4])
    assert cell["worst_error"] == 0.5 and cell["mean_error"] == pytest.approx(0.12375)
    assert cell["mean_error_stderr"] == pytest.approx(np.std([0.01, -0.015, 0.5, 0], ddof=1) / 2)


def test_means_and_what_the_ess_is_worth():
    """Means of 100 independent draws with sd 2 spread by 0.2: an ESS of 100 is right, 400 is four
    times too much.
    """
    rng = np.random.default_rng(0)

    def run(ess):
        mean = 3.0 + 0.2 * rng.normal()
        return row(means=[{"mean": mean, "stderr": 0.2, "true": 3.0, "sd": 2.0}], ess=ess)

    rows = [run(100.0) for _ in range(500)]
    assert ess_ratios(rows)[0] == pytest.approx(1.0, rel=0.2)
    assert ess_ratios([run(400.0) for _ in range(500)])[0] == pytest.approx(4.0, rel=0.2)
    assert ess_ratios(rows[:3]).size == 0
    total = summarise_campaign(rows)["all"]
    assert (total["ess_targets"], total["ess_targets_within_1.5"]) == (1, 1.0)
    far = summarise_campaign([run(400.0) for _ in range(500)])["all"]
    assert (far["ess_targets"], far["ess_targets_within_1.5"]) == (1, 0.0)
    few = summarise_campaign(rows[:10])["all"]
    assert (few["ess_targets"], few["ess_targets_within_1.5"]) == (0, None)
    doubted = [*rows[:10], *(row(diagnosis=["Doubt."]) for _ in range(30))]
    assert summarise_campaign(doubted)["all"]["ess_targets"] == 0
    coverage = total["mean_coverage"]
    assert coverage["within_1"] == pytest.approx(0.683, abs=0.06)
