"""The benchmark's table and figure show the rows that they are given."""

import numpy as np

from nestedvi.bench.report import errors_figure, targets_table


def row(target, method, error, **changes):
    return {
        "target": target,
        "dim": 2,
        "method": method,
        "seeds": 2,
        "particles": 400,
        "mean_abs_error": error,
        "worst_error": -2 * error,
        "worst_stderr": 0.01,
        "worst_diagnosis": [],
        "ess_percent": 71.6,
        "gradients_learning": 30.4,
        "gradients_sampling": 12.0,
        "values": 7.0,
        "seconds": 3.21,
        "seconds_first": 10.04,
        "runs": [{"error": -error}, {"error": 0.0}],
        **changes,
    }


def test_a_row_of_the_table():
    """A worst run that warned says so, unless its method has no standard error to warn by."""
    odd = {"worst_diagnosis": ["Odd."]}
    rows = [
        row("ring", "auto", 0.01234),
        row("ring", "smc", 0.1, **odd),
        row("ring", "blackjax", 0.1, **odd, worst_stderr=float("nan")),
    ]
    lines = targets_table(rows).splitlines()
    assert lines[2] == "| ring | 2 | auto | 0.0123 | -0.025 | 72 | 30 | 12 | 7 | 3.2 | 10.0 |"
    assert "-0.200 (warned)" in lines[3] and "(warned)" not in lines[4]
    assert "over 2 independent runs" in lines[-1] and "400 particles" in lines[-1]


def test_a_bar_a_row_and_a_dot_a_run():
    """Errors below a ten-thousandth are drawn there: the axis is logarithmic."""
    rows = [row(t, m, 0.2 if m == "auto" else 0.05) for t in "ab" for m in ("auto", "smc")]
    (axes,) = errors_figure(rows).axes
    assert [bar.get_width() for bar in axes.patches] == [0.2, 0.05] * 2
    dots = [np.asarray(points.get_offsets())[:, 0] for points in axes.collections]
    np.testing.assert_allclose(dots[0], [0.2, 1e-4])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["auto", "smc"]
    assert axes.get_xscale() == "log"
