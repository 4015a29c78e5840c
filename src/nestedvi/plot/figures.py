"""Figures that several places share: drawn without a display, saved whole or not at all, in one
style. They show arrays, and refuse to know what made them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from nestedvi.storage.files import write_atomic

__all__ = [
    "annealing_figure",
    "draw_density",
    "draw_particles",
    "draw_schedules",
    "sampling_figure",
    "save_figure",
]

mpl.rcParams.update(
    {"font.size": 9, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False}
)

INK, ACCENT, QUIET = "#1f3b57", "#d1495b", "#8a97a6"


def save_figure(figure: Figure, path: Path) -> None:
    """Writes the figure as PNG, whole or not at all."""
    write_atomic(path, lambda p: figure.savefig(p, dpi=150, bbox_inches="tight", format="png"))


def draw_particles(
    axes: Axes, z: ArrayLike, weights: ArrayLike | None = None, *, limit: float, title: str = ""
) -> None:
    """A scatter of 2-D particles, each as dark as its weight says."""
    z = np.asarray(z)
    alpha: Any = 0.5
    if weights is not None:
        w = np.asarray(weights)
        alpha = np.clip(0.4 * w / w.mean(), 0.02, 0.6)
    axes.scatter(z[:, 0], z[:, 1], s=3, c=INK, alpha=alpha, linewidths=0)
    _square(axes, limit, title)


def draw_density(
    axes: Axes, log_gamma: Callable[[np.ndarray], Any], *, limit: float, title: str = ""
) -> None:
    """A 2-D density on a grid; `log_gamma` takes an array of shape (n, 2)."""
    grid = np.linspace(-limit, limit, 200)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    values = np.exp(np.asarray(log_gamma(points))).reshape(200, 200)
    axes.imshow(values, extent=(-limit, limit, -limit, limit), origin="lower", cmap="Blues")
    _square(axes, limit, title)


def _square(axes: Axes, limit: float, title: str) -> None:
    axes.set(
        xlim=(-limit, limit),
        ylim=(-limit, limit),
        xticks=[],
        yticks=[],
        title=title,
        aspect="equal",
    )
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color(QUIET)


def draw_schedules(axes: Axes, schedules: dict[str, ArrayLike]) -> None:
    """β_k against k, one line a schedule; a 2-D array is a set of restarts, shown as mean ± two
    standard deviations.
    """
    for (label, betas), colour in zip(
        schedules.items(), (QUIET, ACCENT, INK, "#2a9d8f"), strict=False
    ):
        betas = np.atleast_2d(np.asarray(betas))
        k, mean = np.arange(1, betas.shape[1] + 1), betas.mean(axis=0)
        axes.plot(k, mean, "o-", ms=3, color=colour, label=label)
        if len(betas) > 1:
            spread = 2 * betas.std(axis=0)
            axes.fill_between(k, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="level k", ylabel="β", title="schedule")
    axes.legend(frameon=False)


def annealing_figure(
    levels: Sequence[tuple[ArrayLike, ArrayLike]], betas: ArrayLike, *, limit: float
) -> Figure:
    """Particles and weights at each level, and the learned schedule beside the linear one."""
    betas = np.asarray(betas)
    figure = Figure(figsize=(13, 5.2), layout="constrained")
    panels, schedule = figure.subfigures(1, 2, width_ratios=[2.6, 1], squeeze=False)[0]
    for k, axes in enumerate(np.ravel(panels.subplots(2, -(-len(betas) // 2)))):
        if k >= len(betas):
            axes.set_axis_off()
            continue
        z, weights = levels[k]
        draw_particles(axes, z, weights, limit=limit, title=f"k = {k + 1},  β = {betas[k]:.3f}")
    draw_schedules(schedule.subplots(), {"linear": np.linspace(0, 1, len(betas)), "learned": betas})
    return figure


def sampling_figure(
    rows: Sequence[tuple[str, Sequence[tuple[str, ArrayLike, ArrayLike]]]], *, limit: float
) -> Figure:
    """One row a sampler, one panel a level; each level is (title, particles, weights)."""
    columns = max(len(levels) for _, levels in rows)
    figure = Figure(figsize=(1.6 * columns, 1.75 * len(rows)), layout="constrained")
    grid = np.atleast_2d(figure.subplots(len(rows), columns, squeeze=False))
    for line, (label, levels) in zip(grid, rows, strict=True):
        for axes in line[len(levels) :]:
            axes.set_axis_off()
        for axes, (title, z, weights) in zip(line, levels, strict=False):
            draw_particles(axes, z, weights, limit=limit, title=title)
        line[0].set_ylabel(label)
    return figure
