"""Tables and figures of the state-space experiment, from the numbers that it recorded. They compute
none of the numbers that they show, and write no files.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nestedvi.plot.figures import ACCENT, INK, QUIET

__all__ = [
    "gap_figure",
    "instances_figure",
    "linear_gaussian_figure",
    "linear_gaussian_table",
    "results_table",
]

Row = Mapping[str, Any]

_COLOURS = ("#d1495b", "#2a9d8f", "#1f3b57", "#e09f3e", "#7b4f9e", "#8a97a6")


def results_table(rows: Sequence[Row], reference: Row) -> str:
    """One line a row: log Ẑ, gap to the reference, ESS, distinct η, time."""
    head = [
        "heuristic",
        "optimised",
        "mean log Ẑ",
        "gap to reference",
        "median gap",
        "ESS %",
        "distinct η",
        "training s",
        "test s",
    ]
    lines = [
        (
            f"# Hidden Markov model: {rows[0]['instances']} test instances, {rows[0]['particles']}"
            " particles\n"
        ),
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
    ]
    for r in rows:
        gap = f"{r['gap_to_reference_mean']:.2f} ± {r['gap_stderr']:.2f}"
        cells = [
            r["label"],
            r["optimisation"],
            f"{r['log_Z_hat_mean']:.2f}",
            gap,
            f"{r['gap_to_reference_median']:.2f}",
            f"{r['ess_percent']:.1f}",
            f"{r['distinct_eta_mean']:.1f}",
            f"{r['train_seconds']:.0f}",
            f"{r['test_seconds']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append(
        f"\nGap: reference − log Ẑ in nats, mean over {reference['instances']} instances ± standard"
        f" error. The reference's own standard error is {reference['stderr_mean']:.3f} on average,"
        f" at most {reference['stderr_max']:.3f}."
    )
    return "\n".join(lines) + "\n"


def linear_gaussian_table(rows: Sequence[Row]) -> str:
    """Particle filters against the Kalman filter at equal particle counts."""
    lines = [
        "# Linear-Gaussian model\n",
        "| filter | particles | variance of log Ẑ | Kalman − mean log Ẑ | ESS % | training s |",
        "|---" * 6 + "|",
    ]
    for r in rows:
        head = (
            f"| {r['filter']} | {r['particles']} | {r['log_Z_hat_variance']:.2g} |"
            f" {r['gap_to_kalman_mean']:.2g} | "
        )
        lines.append(head + f"{r['ess_percent']:.1f} | {r['train_seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def instances_figure(
    truth: Mapping[str, np.ndarray], rows: Mapping[str, Mapping[str, np.ndarray]]
) -> Figure:
    """One row a heuristic, one column an instance: observations coloured by inferred state, the
    inferred clusters' bands of one standard deviation over the true ones in grey."""
    columns = len(truth["x"])
    figure = Figure(figsize=(2.7 * columns, 1.9 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False, sharex=True, sharey="col")
    for line, (label, draws) in zip(grid, rows.items(), strict=True):
        for i, axes in enumerate(line):
            x = truth["x"][i]
            steps = np.arange(1, len(x) + 1)
            for mu, tau in zip(truth["mu"][i], truth["tau"][i], strict=True):
                axes.axhspan(mu - tau**-0.5, mu + tau**-0.5, color="#c9ced6", linewidth=0)
            for m, (mu, tau) in enumerate(zip(draws["mu"][i], draws["tau"][i], strict=True)):
                colour = _COLOURS[m % len(_COLOURS)]
                axes.axhspan(mu - tau**-0.5, mu + tau**-0.5, color=colour, alpha=0.3, linewidth=0)
                here = draws["states"][i] == m
                axes.scatter(steps[here], x[here], s=4, color=colour, linewidths=0)
            pad = 0.08 * (x.max() - x.min()) + 2
            # A cluster without observations may lie anywhere; the picture is of those that made
            # some.
            axes.set(ylim=(x.min() - pad, x.max() + pad), yticks=[])
        line[0].set_ylabel(textwrap.fill(label, 20))
    for axes in grid[-1]:
        axes.set_xlabel("step")
    return figure


def gap_figure(rows: Sequence[Row]) -> Figure:
    """Bars: gap to the reference (log scale), ESS, distinct η; one bar a row."""
    figure = Figure(figsize=(11, 0.42 * len(rows) + 1.1), layout="constrained")
    panels = np.ravel(figure.subplots(1, 3, sharey=True))
    y = np.arange(len(rows))[::-1]
    gaps = np.array([max(r["gap_to_reference_mean"], 1e-3) for r in rows])
    best = int(np.argmin(gaps))
    colours = [ACCENT if i == best else INK for i in range(len(rows))]
    panels[0].barh(y, gaps, xerr=[r["gap_stderr"] for r in rows], color=colours, ecolor=QUIET)
    panels[0].set(
        xscale="log",
        title="gap to the reference, nats",
        yticks=y,
        yticklabels=[r["label"] for r in rows],
    )
    panels[1].barh(y, [r["ess_percent"] for r in rows], color=colours)
    panels[1].set(title="ESS %", xlim=(0, 100))
    panels[2].barh(y, [r["distinct_eta_mean"] for r in rows], color=colours)
    panels[2].set(title=f"distinct η of {rows[0]['particles']}", xlim=(0, rows[0]["particles"]))
    return figure


def linear_gaussian_figure(rows: Sequence[Row]) -> Figure:
    """The variance of log Ẑ of each filter."""
    figure = Figure(figsize=(6, 1.6), layout="constrained")
    axes = figure.subplots()
    y = np.arange(len(rows))[::-1]
    axes.barh(y, [r["log_Z_hat_variance"] for r in rows], color=[QUIET, INK, ACCENT][: len(rows)])
    axes.set(
        xscale="log",
        title="variance of log Ẑ, linear-Gaussian model",
        yticks=y,
        yticklabels=[r["filter"] for r in rows],
    )
    return figure
