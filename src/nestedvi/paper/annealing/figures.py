"""Figures of the annealing experiment from arrays: they draw, and compute nothing but means and
spreads over restarts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nestedvi.paper.annealing.cells import WINDOW
from nestedvi.plot.figures import ACCENT, INK, QUIET, draw_density, draw_particles, draw_schedules

__all__ = ["large_k_figure", "schedule_figure", "targets_figure", "training_figure"]

Row = Mapping[str, Any]

_COLOURS = (QUIET, "#e09f3e", INK, "#2a9d8f", "#7b4f9e", ACCENT)


def schedule_figure(schedules: Row, kls: Row) -> Figure:
    """Left: schedules with two standard deviations. Right: KL between neighbouring targets, mean
    over restarts.
    """
    figure = Figure(figsize=(8.5, 3.2), layout="constrained")
    left, right = np.ravel(figure.subplots(1, 2))
    draw_schedules(left, dict(schedules))
    for (label, values), colour in zip(kls.items(), (QUIET, ACCENT, INK, "#2a9d8f"), strict=False):
        values = np.atleast_2d(np.asarray(values))
        k = np.arange(2, values.shape[1] + 2)
        right.errorbar(
            k,
            values.mean(axis=0),
            yerr=2 * values.std(axis=0),
            fmt="o-",
            ms=3,
            color=colour,
            label=label,
        )
    right.set(
        xlabel="level k",
        ylabel="KL(π_{k−1} ‖ π_k)",
        title="distance between neighbouring targets",
        yscale="log",
    )
    right.legend(frameon=False)
    return figure


def training_figure(curves: Row, iterations: int) -> Figure:
    """ESS % during training, mean ± two standard deviations over restarts of a rolling average; one
    panel a method.
    """
    figure = Figure(
        figsize=(2.6 * min(3, len(curves)), 2.1 * -(-len(curves) // 3)), layout="constrained"
    )
    panels = np.ravel(
        figure.subplots(
            -(-len(curves) // 3), min(3, len(curves)), sharex=True, sharey=True, squeeze=False
        )
    )
    for axes, (label, values), colour in zip(panels, curves.items(), _COLOURS * 2, strict=False):
        values = np.asarray(values)
        # A rolling mean exists once its window is full.
        x = np.linspace(min(WINDOW, iterations), iterations, len(values))
        mean, spread = values.mean(axis=1), 2 * values.std(axis=1)
        axes.plot(x, mean, color=colour)
        axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.25, linewidth=0)
        axes.set(title=label, ylim=(0, 100))
    for axes in panels[len(curves) :]:
        axes.set_axis_off()
    figure.supxlabel("training step")
    figure.supylabel("ESS %")
    return figure


def targets_figure(
    entries: Sequence[tuple[str, Callable[[np.ndarray], Any], Any, Any, float]],
) -> Figure:
    """Each target's density beside weighted samples: entries are (name, log density, particles,
    weights, limit).
    """
    figure = Figure(figsize=(2.4 * 2 * len(entries), 2.6), layout="constrained")
    panels = np.ravel(figure.subplots(1, 2 * len(entries)))
    for i, (name, log_gamma, z, weights, limit) in enumerate(entries):
        draw_density(panels[2 * i], log_gamma, limit=limit, title=f"{name}: density")
        draw_particles(panels[2 * i + 1], z, weights, limit=limit, title=f"{name}: NVIR*")
    return figure


def large_k_figure(rows: Sequence[Row], log_Z: float) -> Figure:
    """log Ẑ, ESS, time a step and memory against K."""
    figure = Figure(figsize=(11, 2.8), layout="constrained")
    panels = np.ravel(figure.subplots(1, 4))
    k = [row["K"] for row in rows]
    style = {"marker": "o", "ms": 3, "color": INK}
    panels[0].errorbar(
        k, [r["log_Z_hat_mean"] for r in rows], yerr=[2 * r["log_Z_hat_std"] for r in rows], **style
    )
    panels[0].axhline(log_Z, color=ACCENT, lw=0.8)
    panels[0].set(title="log Ẑ")
    panels[1].errorbar(
        k, [r["ess_percent"] for r in rows], yerr=[2 * r["ess_percent_std"] for r in rows], **style
    )
    panels[1].set(title="ESS %", ylim=(0, 102))
    panels[2].plot(k, [1e6 * (r["step_seconds"] or np.nan) for r in rows], **style)
    panels[2].set(title="µs a training step", yscale="log")
    for name, colour in (("level_parallel_temp_bytes", INK), ("sequential_temp_bytes", ACCENT)):
        panels[3].plot(
            k,
            [r[name] / 1e6 for r in rows],
            marker="o",
            ms=3,
            color=colour,
            label=name.split("_temp")[0].replace("_", "-"),
        )
    panels[3].set(title="XLA temporaries, MB", yscale="log")
    panels[3].legend(frameon=False)
    for axes in panels:
        axes.set(xscale="log", xlabel="K", xticks=k, xticklabels=[str(x) for x in k])
        axes.minorticks_off()
    return figure
