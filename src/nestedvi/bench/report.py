"""Table and figure of the benchmark of known targets, from its rows. They only format and draw."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nestedvi.plot.figures import ACCENT, INK, QUIET

__all__ = ["errors_figure", "targets_table"]

Row = dict[str, Any]
_COLOURS = (ACCENT, INK, QUIET)


def targets_table(rows: Sequence[Row]) -> str:
    """Markdown: one line a target and method."""
    head = (
        "| target | dim | method | mean abs. error | worst | ESS % | gradients: learning | sampling"
        " | values | seconds | first |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        # A method without a standard error has no diagnosis of its own.
        own = row["worst_stderr"] is not None and np.isfinite(row["worst_stderr"])
        warned = " (warned)" if own and row["worst_diagnosis"] else ""
        cells = [
            row["target"],
            row["dim"],
            row["method"],
            f"{row['mean_abs_error']:.4f}",
            f"{row['worst_error']:+.3f}{warned}",
            *(
                f"{row[name]:.0f}"
                for name in ("ess_percent", "gradients_learning", "gradients_sampling", "values")
            ),
            *(f"{row[name]:.1f}" for name in ("seconds", "seconds_first")),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    first = rows[0]
    lines += [
        "",
        (
            f"Errors of log Z over {first['seeds']} independent runs, each with its own learning,"
            f" {first['particles']} particles. Gradients are those of the target for each particle;"
            " values are those without a gradient (draws from a base, weights). ESS: that of the"
            " weights, or the number of first draws that the particles descend from, where that is"
            " smaller. Seconds: the median run, and the first one with compilation."
        ),
    ]
    return "\n".join(lines) + "\n"


def errors_figure(rows: Sequence[Row]) -> Figure:
    """Mean absolute error of every method on every target, runs as dots, on a logarithmic scale."""
    targets, methods = (
        list(dict.fromkeys(r["target"] for r in rows)),
        list(dict.fromkeys(r["method"] for r in rows)),
    )
    figure = Figure(figsize=(9, 0.55 * len(targets) + 1.2), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(methods)
    for row in rows:
        i, j = targets.index(row["target"]), methods.index(row["method"])
        y = len(targets) - 1 - i + 0.4 - height * (j + 0.5)
        colour = _COLOURS[j % len(_COLOURS)]
        label = row["method"] if i == 0 else None
        axes.barh(y, max(row["mean_abs_error"], 1e-4), height, color=colour, label=label)
        errors = np.maximum(np.abs([run["error"] for run in row["runs"]]), 1e-4)
        axes.scatter(
            errors,
            np.full(len(errors), y),
            s=6,
            color="white",
            edgecolors="black",
            linewidths=0.4,
            zorder=3,
        )
    axes.set(
        xscale="log",
        xlabel="|error of log Z|, nats",
        yticks=np.arange(len(targets))[::-1],
        yticklabels=targets,
    )
    axes.legend(frameon=False)
    return figure
