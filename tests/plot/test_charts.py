"""Charts of reports: what they draw is what they were given, and none is empty."""

import numpy as np
import pytest

from nestedvi.plot import charts
from nestedvi.plot.page import figures

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 300))
W = np.full(300, 1 / 300)
CHARTS = {
    "interval": lambda: charts.interval_chart([1.0, 1.2, 0.9], 1.05, 0.1, ylabel="log Ẑ"),
    "lines": lambda: charts.lines_chart([[0.1, 0.4], [0.2, 0.3, 0.9]], xlabel="k", ylabel="β"),
    "one level": lambda: charts.lines_chart([[0.3]], xlabel="k", ylabel="ESS"),
    "all zero": lambda: charts.lines_chart([[0.0, 0.0]], xlabel="k", ylabel="divergence"),
    "bars": lambda: charts.bars_chart([3, 4], xlabel="batch", ylabel="ancestors", most=5),
    "curve": lambda: charts.curve_chart(np.linspace(0, 1, 5) ** 0.5, xlabel="x", ylabel="y"),
    "marginal": lambda: charts.marginal_chart(X, W, "slope"),
    "constant": lambda: charts.marginal_chart(np.ones(300), W, "constant"),
    "pair": lambda: charts.pair_chart(X, Y, W, ("a", "b")),
    "steps": lambda: charts.steps_chart([1, 2, 3], [[0.1, np.nan, 0.3]], ylabel="ESS"),
    "heat": lambda: charts.heat_chart([10, 20], [[0.1, 1.0], [0.2, 0.0]], label="KL", log=True),
}


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_has_something_in_it_and_becomes_svg(name):
    figure = CHARTS[name]()
    axes = figure.axes[0]
    drawn = [*axes.get_lines(), *axes.patches, *axes.collections, *axes.images]
    assert drawn
    (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert high > low and top > bottom
    assert figures({name: figure}).count("<svg") == 1


def test_batches_and_their_interval():
    (axes,) = CHARTS["interval"]().axes
    assert list(axes.get_lines()[1].get_ydata()) == [1.0, 1.2, 0.9]
    (band,) = axes.patches
    assert band.get_y() == pytest.approx(0.95) and band.get_height() == pytest.approx(0.2)


def test_lines_count_levels_from_where_they_are_told():
    (axes,) = charts.lines_chart([[0.0, 0.5, 1.0]], xlabel="k", ylabel="β", first=0).axes
    assert list(axes.get_lines()[0].get_xdata()) == [0, 1, 2]


def test_the_first_steps_do_not_hide_the_rest():
    line = np.r_[-1e6, np.linspace(-2, -1, 200)]
    (axes,) = charts.steps_chart(np.arange(201), [line], ylabel="log Ẑ").axes
    assert axes.get_ylim()[0] > -4


def test_levels_are_rows_from_below():
    axes = CHARTS["heat"]().axes[0]
    np.testing.assert_allclose(axes.images[0].get_array(), [[-1, np.log10(0.2)], [0, -3]])
    assert axes.images[0].origin == "lower"
