"""Tables and figures show the numbers that they are given."""

import numpy as np
import pytest

from nestedvi.paper.hmm.report import (
    gap_figure,
    instances_figure,
    linear_gaussian_figure,
    linear_gaussian_table,
    results_table,
)

ROW = {
    "label": "one",
    "optimisation": "partial",
    "log_Z_hat_mean": -512.345,
    "gap_to_reference_mean": 3.456,
    "gap_stderr": 0.123,
    "gap_to_reference_median": 2.345,
    "ess_percent": 43.21,
    "distinct_eta_mean": 7.65,
    "train_seconds": 61.4,
    "test_seconds": 9.6,
    "instances": 40,
    "particles": 100,
}
ROWS = [ROW, {**ROW, "label": "two", "gap_to_reference_mean": 0.5, "ess_percent": 80.0}]
FILTERS = [
    {
        "filter": name,
        "particles": 100,
        "log_Z_hat_variance": variance,
        "gap_to_kalman_mean": variance / 2,
        "ess_percent": 50.0,
        "train_seconds": 12.3,
    }
    for name, variance in (("bootstrap", 0.25), ("learned", 0.03))
]


def test_a_row_of_the_table():
    reference = {"instances": 10, "stderr_mean": 0.0123, "stderr_max": 0.0456}
    lines = results_table(ROWS, reference).splitlines()
    assert lines[0].endswith("40 test instances, 100 particles")
    assert lines[4] == ("| one | partial | -512.35 | 3.46 ± 0.12 | 2.35 | 43.2 | 7.7 | 61 | 10 |")
    assert len({line.count("|") for line in lines[2:6]}) == 1
    assert "mean over 10 instances" in lines[-1] and "0.012 on average, at most 0.046" in lines[-1]


def test_a_row_of_the_linear_gaussian_table():
    lines = linear_gaussian_table(FILTERS).splitlines()
    assert lines[4] == "| bootstrap | 100 | 0.25 | 0.12 | 50.0 | 12 |"
    assert len(lines) == 6


def test_bars_have_the_rows_lengths_and_the_best_row_stands_out():
    gaps, shares, distinct = gap_figure(ROWS).axes
    assert [bar.get_width() for bar in gaps.patches] == [3.456, 0.5]
    assert [bar.get_width() for bar in shares.patches] == [43.21, 80.0]
    assert [bar.get_width() for bar in distinct.patches] == [7.65, 7.65]
    plain, best = (bar.get_facecolor() for bar in gaps.patches)
    assert plain != best
    assert [text.get_text() for text in gaps.get_yticklabels()] == ["one", "two"]


def test_bars_of_the_filters():
    (axes,) = linear_gaussian_figure(FILTERS).axes
    assert [bar.get_width() for bar in axes.patches] == [0.25, 0.03]


def test_every_observation_is_drawn_once_in_the_colour_of_its_state():
    """Two instances in columns, a line a row; bands are one standard deviation wide."""
    x = np.array([[0.0, 1.0, 9.0], [5.0, 5.5, 4.0]])
    truth = {"x": x, "mu": np.array([[0.5, 9.0], [5.0, 0.0]]), "tau": np.full((2, 2), 4.0)}
    draws = {**truth, "states": np.array([[0, 0, 1], [1, 1, 1]])}
    figure = instances_figure(truth, {"one": draws, "two": draws})
    assert len(figure.axes) == 4
    first = figure.axes[0]
    shown = [np.asarray(points.get_offsets()) for points in first.collections]
    np.testing.assert_allclose(shown[0], [[1, 0], [2, 1]])
    np.testing.assert_allclose(shown[1], [[3, 9]])
    assert first.patches[0].get_height() == pytest.approx(2 * 4.0**-0.5)
    assert first.get_ylabel() == "one"
