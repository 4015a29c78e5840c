"""Which evidences are published, and what the table says of them; rows are made up."""

import pytest

from nestedvi.bench.published import publish, published_table, reason_left_out

RECORD = {
    "command": "nestedvi bench evidences",
    "versions": {"jax": "1"},
    "device": "cpu",
    "cpu_count": 2,
    "seed": 0,
    "config": {"draws": 100},
}


def row(problem="sonar", auto=(-10.0, 0.003), bridge=(-10.01, 0.004), **other):
    return {
        "problem": problem,
        "auto": {"log_Z": auto[0], "stderr": auto[1], "diagnosis": []},
        "bridge": {"log_Z": bridge[0], "stderr": bridge[1], "rhat": 1.001, **other},
    }


def test_agreement_is_a_mean_weighted_by_precision():
    content = publish({"rows": [row(bridge=(-10.004, 0.004))], **RECORD})
    (found,) = content["rows"]
    assert found["log_Z"] == pytest.approx(-10 - 0.004 * 9 / 25)
    assert found["stderr"] == pytest.approx(0.0024)
    assert (found["auto"], found["bridge"]) == ([-10.0, 0.003], [-10.004, 0.004])
    assert content["left_out"] == {} and RECORD.items() <= content.items()


def test_the_error_is_not_below_what_they_are_apart():
    (found,) = publish({"rows": [row(bridge=(-10.018, 0.004))], **RECORD})["rows"]
    assert found["stderr"] == pytest.approx(0.009)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (row(bridge=(-10.03, 0.004)), "6.0 standard errors apart"),
        (row(rhat=1.2), "chains do not agree"),
        (row(auto=(-10.0, 0.2), bridge=(-10.1, 0.2)), "standard error is 0.14"),
        (
            {**row(), "auto": {"log_Z": None, "why": "no answer within 5 s"}},
            "auto: no answer within 5 s",
        ),
    ],
)
def test_what_is_left_out_says_why(given, reason):
    assert reason in reason_left_out(given)
    content = publish({"rows": [given, row("cox")], **RECORD})
    assert [each["problem"] for each in content["rows"]] == ["cox"]
    assert reason in content["left_out"]["sonar"]
    assert f"| `sonar` | – ({content['left_out']['sonar']}) |" in published_table(content)


def test_the_table_has_both_ways_and_what_is_known_otherwise():
    doubtful = row("seeds", auto=(-73.41, 0.01), bridge=(-73.40, 0.01))
    doubtful["auto"]["diagnosis"] = ["Doubtful."]
    lines = published_table(publish({"rows": [row(), doubtful], **RECORD})).splitlines()
    assert lines[2].startswith("| `sonar` | -10.0036 ± 0.0050 | -10.0000 ± 0.0030 | -10.0100")
    assert "(warned)" in lines[3] and "-73.4062 (quadrature)" in lines[3]
