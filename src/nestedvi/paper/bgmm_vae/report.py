"""Tables and figures of the BGMM-VAE experiment, from the numbers and images that it recorded.
It computes none of the numbers that it shows, and writes no files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nestedvi.plot.figures import ACCENT, INK, QUIET

__all__ = ["batch_figure", "clusters_figure", "curves_figure", "results_table"]

Entry = tuple[str, Mapping[str, Any]]

_COLOURS = (INK, ACCENT, QUIET, "#e09f3e", "#2a9d8f", "#7b4f9e")


def results_table(rows: Sequence[Entry], floors: Mapping[str, float]) -> str:
    """One row a method; TV between E[λ] and λ* beside what true labels and uniform proportions give
    on the same mini-batches.

    A row that diverged shows no figures, and says below the table why.
    """
    head = (
        "method",
        "seeds",
        "TV median",
        "TV mean ± std",
        "mean-field TV",
        "accuracy",
        "bound per image",
        "training s",
        "images/s",
    )
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    notes = []
    for label, row in rows:
        if row.get("diverged"):
            lines.append(f"| {label} | {row['seeds']} | diverged |" + " – |" * (len(head) - 3))
            notes.append(f"\n*{label}* diverged: {row['diverged']}")
            continue
        cells = (
            label,
            str(row["seeds"]),
            f"{row['lambda_tv_median']:.3f}",
            f"{row['lambda_tv_mean']:.3f} ± {row['lambda_tv_std']:.3f}",
            f"{row['lambda_tv_mean_field_median']:.3f}",
            f"{row['cluster_accuracy_mean']:.3f}",
            f"{row['bound_per_image']:.1f}",
            f"{row['train_seconds']:.0f}",
            f"{row['images_per_second'] or np.nan:,.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    for label, name in (
        ("*true labels*", "lambda_tv_true_labels"),
        ("*uniform λ*", "lambda_tv_uniform"),
    ):
        lines.append(f"| {label} | | {floors[name]:.3f} |" + " |" * (len(head) - 3))
    return "\n".join(lines + notes) + "\n"


def _grid(images: np.ndarray, columns: int) -> np.ndarray:
    """Images side by side in one array, with a white line between them."""
    num, height, width = images.shape
    rows = -(-num // columns)
    sheet = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 255, np.uint8)
    for i, image in enumerate(images):
        top, left = 1 + (i // columns) * (height + 1), 1 + (i % columns) * (width + 1)
        sheet[top : top + height, left : left + width] = image
    return sheet


def _show(axes: Axes, images: np.ndarray, columns: int, title: str = "") -> None:
    axes.imshow(
        _grid(np.asarray(images), columns), cmap="gray", vmin=0, vmax=255, interpolation="nearest"
    )
    axes.set(xticks=[], yticks=[], title=title)
    for side in axes.spines.values():
        side.set_visible(False)


def batch_figure(entries: Sequence[Entry], classes: Sequence[str]) -> Figure:
    """One row a method: part of a mini-batch, images generated from the λ inferred for it, bars of
    λ* against E[λ] under their total variation.
    """
    figure = Figure(figsize=(11, 3.3 * len(entries)), layout="constrained")
    grid = figure.subplots(len(entries), 3, squeeze=False, width_ratios=[1, 1, 1.35])
    for line, (label, entry) in zip(grid, entries, strict=True):
        _show(line[0], entry["batch"], 10, "a mini-batch (part)")
        _show(line[1], entry["generated"], 10, "generated from the inferred λ")
        line[0].set_ylabel(label, fontsize=10)
        _bars(line[2], entry, classes)
    return figure


def _bars(axes: Axes, entry: Mapping[str, Any], classes: Sequence[str]) -> None:
    place = np.arange(len(classes))
    axes.bar(place - 0.2, entry["lam_true"], 0.4, color=QUIET, label="λ*")
    axes.bar(place + 0.2, entry["lam"], 0.4, color=ACCENT, label="E[λ]")
    axes.set(xticks=place, ylabel="proportion", title=f"total variation {entry['tv']:.3f}")
    long = max(map(len, classes)) > 2
    axes.set_xticklabels(classes, rotation=45 if long else 0, ha="right" if long else "center")
    axes.legend(frameon=False)


def clusters_figure(entries: Sequence[Entry], classes: Sequence[str]) -> Figure:
    """One panel a method: ten generated images of every cluster, a row each, in the order of the
    classes they stand for.
    """
    figure = Figure(figsize=(3.4 * len(entries), 3.7), layout="constrained")
    panels = np.ravel(figure.subplots(1, len(entries), squeeze=False))
    for i, (axes, (label, entry)) in enumerate(zip(panels, entries, strict=True)):
        clusters = np.asarray(entry["clusters"])
        num, each, height, width = clusters.shape
        _show(axes, clusters.reshape(num * each, height, width), each, label)
        if i == 0:
            axes.set_yticks((np.arange(num) + 0.5) * (height + 1), classes)
            axes.tick_params(length=0)
    return figure


def curves_figure(entries: Sequence[Entry], iterations: int) -> Figure:
    """What training reports of the bound per image, a line a seed; where candidates were tried
    first, from the step after that.

    The nested objective reports it from the third KL alone, wake-sleep as log Ẑ of its samples:
    shapes compare, levels do not.
    """
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    axes = figure.subplots()
    for (label, entry), colour in zip(
        entries, _COLOURS * (1 + len(entries) // len(_COLOURS)), strict=False
    ):
        curve = np.asarray(entry["curve"])
        start = entry["start"]
        steps = start + (np.arange(len(curve)) + 0.5) * (iterations - start) / len(curve)
        for i, line in enumerate(curve.T):
            axes.plot(steps, line, color=colour, lw=0.8, label=label if i == 0 else None)
    axes.set(
        xlabel="training step",
        ylabel="nats per image",
        title="bound that training reports",
        xlim=(0, iterations),
    )
    # The first steps are hundreds of nats below all others.
    lows, highs = np.transpose(
        [np.quantile(np.asarray(entry["curve"]), (0.05, 1)) for _, entry in entries]
    )
    if np.isfinite([lows, highs]).all():
        axes.set_ylim(lows.min(), highs.max() + 0.1 * np.ptp([lows.min(), highs.max()]))
    figure.legend(frameon=False, loc="outside right upper")
    return figure
