"""Table and figure of the benchmark on posteriordb, from its rows. They only format and draw."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nestedvi.bench.posteriordb.catalogue import POSTERIORS
from nestedvi.plot.figures import ACCENT, INK, QUIET

__all__ = [
    "OFF_IN_ERRORS",
    "OFF_IN_SDS",
    "SD_RATIO",
    "label",
    "posteriordb_figure",
    "posteriordb_table",
    "within_limits",
]

Row = dict[str, Any]

OFF_IN_SDS, OFF_IN_ERRORS, SD_RATIO = 0.1, 4.0, 0.1
"""What an answer should reach: errors of means in reference standard deviations and in standard
errors, and how far a ratio of standard deviations may be from one."""


def label(name: str) -> str:
    """A short name: the model's, or the data's where several data sets share a model."""
    data, model = name.split("-")
    shared = sum(other.split("-")[1] == model for other in POSTERIORS) > 1
    return data if shared else model


def within_limits(row: Row) -> bool:
    """Whether the first answer is as good as it should be."""
    first = row["first"]
    return bool(
        first
        and abs(first["worst_off_in_sds"]) <= OFF_IN_SDS
        and abs(first["worst_off_in_errors"]) <= OFF_IN_ERRORS
        and abs(first["worst_sd_ratio"] - 1) <= SD_RATIO
    )


def posteriordb_table(rows: Sequence[Row]) -> str:
    """Markdown of at most 80 columns: one line a posterior, then diagnoses and refusals."""
    head = ("posterior", "dim", "off sd", "off se", "sds", "log Z", "CPU s", "2nd", "")
    table = [head, *map(_line, rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    lines = [_join(table[0], widths), "|".join(["", *("-" * max(w, 1) for w in widths), ""])]
    lines += [_join(line, widths) for line in table[1:]]
    return "\n".join([*lines, "", *_summary(rows), *_remarks(rows)]) + "\n"


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"|{'|'.join(padded)}|"


def _line(row: Row) -> tuple[str, ...]:
    first, second = row["first"], row["second"]
    if not first:
        return (label(row["posterior"]), "", "", "", "", row["state"], "", "", "")
    log_Z = (
        f"{first['log_Z']:.3f}±{first['log_Z_stderr']:.3f}"
        if row["proper"] and first["log_Z"] is not None
        else ""
    )
    again = f"{second['cpu_seconds']:.0f}" if second and "cpu_seconds" in second else "–"
    mark = ("" if within_limits(row) else "*") + ("w" if first["diagnosis"] else "")
    return (
        label(row["posterior"]),
        str(len(first["parameters"])),
        f"{abs(first['worst_off_in_sds']):.3f}",
        f"{abs(first['worst_off_in_errors']):.1f}",
        f"{first['worst_sd_ratio']:.3f}",
        log_Z,
        f"{first['cpu_seconds']:.0f}",
        again,
        mark,
    )


def _summary(rows: Sequence[Row]) -> list[str]:
    answered = [row for row in rows if row["first"]]
    cpu = sum(row["first"]["cpu_seconds"] for row in answered)
    return [
        f"{len(answered)} of {len(rows)} answered, {sum(map(within_limits, rows))} within the"
        f" limits, {cpu / 60:.0f} CPU minutes for the first answers.",
        "",
        "dim: parameters of the reference. off sd, off se: the largest error of a mean",
        "in reference standard deviations, and in standard errors of the difference.",
        "sds: the worst ratio of standard deviations. CPU s, 2nd: CPU seconds of the",
        f"first answer, and of another when all is compiled. *: above {OFF_IN_SDS} or"
        f" {OFF_IN_ERRORS:.0f}, or",
        f"more than {100 * SD_RATIO:.0f} % off. w: warned, see below.",
    ]


def _remarks(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        name, first = label(row["posterior"]), row["first"]
        if not first:
            lines.append(f"- {name}: {row['refusal']}")
            continue
        lines += [f"- {name}: {sentence}" for sentence in first["diagnosis"]]
        if row["second"] and "refusal" in row["second"]:
            lines.append(f"- {name}, second answer: {row['second']['refusal']}")
        if row["infinite_variance"]:
            names = " and ".join(row["infinite_variance"])
            lines.append(
                f"- {name}: {names} have no finite variance, so that standard deviations of two"
                " sets of draws differ; the column sds leaves them out."
            )
    return ["", *lines] if lines else []


def posteriordb_figure(rows: Sequence[Row]) -> Figure:
    """Three columns of dots, a line a posterior: errors of means in both units, and the worst ratio
    of standard deviations, with their limits.
    """
    answered = [row for row in rows if row["first"]]
    figure = Figure(figsize=(10, 0.19 * len(answered) + 1.3), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    y = np.arange(len(answered))[::-1]
    good = np.array([within_limits(row) for row in answered])
    panels = (
        ("off_in_sds", (OFF_IN_SDS,), "error of a mean,\nreference sds"),
        ("off_in_errors", (OFF_IN_ERRORS,), "error of a mean,\nstandard errors"),
        ("sd_ratio", (1 - SD_RATIO, 1 + SD_RATIO), "worst ratio of\nstandard deviations"),
    )
    for ax, (column, limits, text) in zip(axes, panels, strict=True):
        for run, colour in (("second", QUIET), ("first", INK)):
            x = np.array([_value(row[run], column) for row in answered])
            colours = np.where(good, INK, ACCENT) if run == "first" else colour
            ax.scatter(x, y, s=14, c=colours, zorder=3 if run == "first" else 2)
        for limit in limits:
            ax.axvline(limit, color=QUIET, linewidth=0.8, linestyle="--")
        ax.set_xlabel(text)
        ax.set_xscale("log")
        ax.grid(axis="y", linewidth=0.3)
    axes[2].xaxis.set_major_formatter("{x:g}")
    axes[0].set_yticks(y, [label(row["posterior"]) for row in answered], fontsize=7)
    return figure


def _value(run: Row | None, column: str) -> float:
    value = (run or {}).get(f"worst_{column}")
    return float("nan") if value is None else abs(value)
