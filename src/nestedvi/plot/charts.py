"""Small charts for reports, each readable at the width of a phone. They draw the arrays that they
are given.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from nestedvi.plot.figures import ACCENT, INK, QUIET
from nestedvi.plot.page import style
from nestedvi.plot.posterior import marginal, weighted_range

__all__ = [
    "bars_chart",
    "curve_chart",
    "heat_chart",
    "interval_chart",
    "lines_chart",
    "marginal_chart",
    "pair_chart",
    "steps_chart",
]

_SIZE = (3.6, 2.5)
# From nothing to full ink: it shows on a light page and on a dark one.
_BLUE = "#3f7fbf"
_CLEAR_TO_BLUE = LinearSegmentedColormap.from_list("ink", [to_rgba(_BLUE, 0.03), to_rgba(_BLUE)])


def _axes(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    with style():
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def _whole_numbers(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def interval_chart(values: ArrayLike, centre: float, error: float, *, ylabel: str) -> Figure:
    """One point a batch, and the interval centre ± error behind them."""
    values = np.asarray(values, float)
    with style():
        figure, axes = _axes("batch", ylabel)
        axes.axhspan(centre - error, centre + error, color=_BLUE, alpha=0.25, linewidth=0)
        axes.axhline(centre, color=INK, linewidth=1)
        axes.plot(np.arange(1, len(values) + 1), values, "o", color=ACCENT, ms=5)
        _whole_numbers(axes)
    return figure


def lines_chart(lines: Sequence[ArrayLike], *, xlabel: str, ylabel: str, first: int = 1) -> Figure:
    """One line a run against the number of the level, counted from `first`."""
    with style():
        figure, axes = _axes(xlabel, ylabel)
        for line in lines:
            y = np.asarray(line, float)
            axes.plot(first + np.arange(len(y)), y, "o-", ms=2.5, lw=1, color=INK, alpha=0.6)
        top = max(float(np.max(line)) for line in lines)
        axes.set_ylim(0, 1.04 * (top if top > 0 else 1.0))
        longest = max(len(np.asarray(line)) for line in lines)
        axes.set_xlim(first - 0.5, first + longest - 0.5)
        _whole_numbers(axes)
    return figure


def bars_chart(values: ArrayLike, *, xlabel: str, ylabel: str, most: float | None = None) -> Figure:
    """One bar a batch; a line marks what could be had at most."""
    values = np.asarray(values, float)
    with style():
        figure, axes = _axes(xlabel, ylabel)
        axes.bar(np.arange(1, len(values) + 1), values, color=_BLUE)
        if most is not None:
            axes.axhline(most, color=ACCENT, linewidth=1)
        _whole_numbers(axes)
    return figure


def curve_chart(share: ArrayLike, *, xlabel: str, ylabel: str) -> Figure:
    """A cumulative share at evenly spaced points from 0 to 1, beside that of equal weights."""
    share = np.asarray(share, float)
    x = np.linspace(0, 1, len(share))
    with style():
        figure, axes = _axes(xlabel, ylabel)
        axes.plot(x, x, color=QUIET, linewidth=1, linestyle="--")
        axes.plot(x, share, color=INK)
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def marginal_chart(x: np.ndarray, w_bar: np.ndarray, name: str) -> Figure:
    """A weighted histogram and the mean."""
    figure, axes = _axes("", "")
    with style():
        marginal(axes, x, w_bar, name, colour=_BLUE)
    return figure


def pair_chart(x: np.ndarray, y: np.ndarray, w_bar: np.ndarray, names: tuple[str, str]) -> Figure:
    """The weighted density of two elements."""
    figure, axes = _axes(*names)
    with style():
        axes.hexbin(
            x,
            y,
            C=w_bar,
            reduce_C_function=np.sum,
            gridsize=30,
            cmap=_CLEAR_TO_BLUE,
            linewidths=0,
            extent=(*weighted_range(x, w_bar), *weighted_range(y, w_bar)),
            rasterized=True,
        )
    return figure


def steps_chart(steps: ArrayLike, lines: ArrayLike, *, ylabel: str) -> Figure:
    """Lines over training steps, one a row; the middle nine tenths of all values are shown whole,
    so that the first steps do not hide the rest.
    """
    lines = np.atleast_2d(np.asarray(lines, float))
    with style():
        figure, axes = _axes("step", ylabel)
        for line in lines:
            axes.plot(np.asarray(steps), line, lw=1, color=INK, alpha=max(0.25, 1 / len(lines)))
        finite = lines[np.isfinite(lines)]
        if finite.size:
            low, high = np.quantile(finite, [0.05, 0.95])
            margin = 0.5 * (high - low) + 1e-6 * (1 + abs(high))
            axes.set_ylim(max(finite.min(), low - margin), min(finite.max(), high + margin) + 1e-9)
    return figure


def heat_chart(steps: ArrayLike, values: ArrayLike, *, label: str, log: bool = False) -> Figure:
    """Values by level (rows from below) and training step."""
    shown = np.asarray(values, float)
    if log:
        shown = np.log10(np.maximum(shown, 1e-3))
        label = f"log₁₀ {label}"
    with style():
        figure, axes = _axes("step", "level")
        image = axes.imshow(
            shown.T,
            aspect="auto",
            origin="lower",
            interpolation="nearest",
            cmap="cividis",
            extent=(0, float(np.max(steps)), 0.5, shown.shape[1] + 0.5),
        )
        figure.colorbar(image, ax=axes, label=label)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    return figure
