"""The figure of a posterior: weighted marginals, and pairs where there are few coordinates. It
draws the arrays that it is given, and knows no posterior.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nestedvi.plot.figures import INK, QUIET

__all__ = ["marginal", "posterior_figure", "weighted_range"]

_PAIRS, _MARGINALS, _BINS = 5, 16, 40


def posterior_figure(
    elements: Mapping[str, np.ndarray], w_bar: np.ndarray, *, title: str = ""
) -> Figure:
    """One panel a scalar element from its values and normalised weights: up to five with their
    pairs, else sixteen marginals.
    """
    figure = _pairs(elements, w_bar) if len(elements) <= _PAIRS else _marginals(elements, w_bar)
    left_out = len(elements) - _MARGINALS
    figure.suptitle(
        title + (f"   (first {_MARGINALS} of {len(elements)} elements)" if left_out > 0 else ""),
        fontsize=9,
    )
    return figure


def _pairs(elements: Mapping[str, np.ndarray], w_bar: np.ndarray) -> Figure:
    num = len(elements)
    size = 3.6 if num == 1 else 2.2 * num
    figure = Figure(figsize=(size, size), layout="constrained")
    grid = figure.subplots(num, num, squeeze=False)
    for i, (row, y) in enumerate(elements.items()):
        for j, (column, x) in enumerate(elements.items()):
            axes = grid[i, j]
            if j > i:
                axes.set_axis_off()
            elif j == i:
                marginal(axes, x, w_bar, column)
            else:
                axes.hexbin(
                    x,
                    y,
                    C=w_bar,
                    reduce_C_function=np.sum,
                    gridsize=30,
                    cmap="Blues",
                    extent=(*weighted_range(x, w_bar), *weighted_range(y, w_bar)),
                )
                axes.set(xlabel=column, ylabel=row)
    return figure


def _marginals(elements: Mapping[str, np.ndarray], w_bar: np.ndarray) -> Figure:
    shown = list(elements.items())[:_MARGINALS]
    rows = -(-len(shown) // 4)
    figure = Figure(figsize=(10, 2.1 * rows), layout="constrained")
    panels = np.ravel(figure.subplots(rows, 4, squeeze=False))
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    for axes, (name, x) in zip(panels, shown, strict=False):
        marginal(axes, x, w_bar, name)
    return figure


def marginal(axes: Axes, x: np.ndarray, w_bar: np.ndarray, name: str, *, colour: str = INK) -> None:
    """A weighted histogram, with a line at the mean."""
    limits = weighted_range(x, w_bar)
    axes.hist(x, bins=_BINS, range=limits, weights=w_bar, density=True, color=colour, alpha=0.8)
    axes.axvline(float(w_bar @ x), color=QUIET, linewidth=1)
    axes.set(title=name, yticks=[])
    axes.spines["left"].set_visible(False)


def weighted_range(x: np.ndarray, w_bar: np.ndarray) -> tuple[float, float]:
    """Where all but a thousandth of the weight is: one far particle must not squeeze the rest into
    a bin.
    """
    x, w_bar = x[w_bar > 0], w_bar[w_bar > 0]
    order = np.argsort(x)
    low, high = np.interp([0.0005, 0.9995], np.cumsum(w_bar[order]), x[order])
    margin = 0.05 * (high - low) + 1e-9 * (1 + abs(high))
    return float(low - margin), float(high + margin)
