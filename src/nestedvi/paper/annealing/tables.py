"""Tables of the annealing experiment in Markdown: the numbers that it recorded, and the paper's
beside them. They only format.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["PAPER", "budget_table", "large_k_table", "results_table"]

Row = Mapping[str, Any]

# Table 1 of the paper: log Ẑ and ESS % by method and K.
PAPER: dict[tuple[str, int], tuple[float, int]] = {
    (method, k): value
    for method, values in {
        "svi": ((1.86, 51), (1.89, 47), (1.92, 32), (1.72, 25)),
        "svi-flow": ((2.06, 55),),
        "avo": ((1.86, 51), (1.96, 44), (2.01, 46), (2.05, 46)),
        "nvi": ((1.86, 51), (1.97, 45), (2.03, 45), (2.06, 41)),
        "nvir": ((1.86, 51), (1.98, 99), (2.04, 98), (2.06, 97)),
        "nvi-star": ((1.86, 51), (2.06, 51), (2.07, 54), (2.07, 54)),
        "nvir-star": ((1.86, 51), (2.06, 95), (2.07, 96), (2.08, 97)),
        "avo-flow": ((2.05, 28), (2.08, 67), (2.07, 77), (2.08, 70)),
        "nvi-star-flow": ((2.05, 28), (2.08, 81), (2.08, 78), (2.08, 70)),
    }.items()
    for k, value in zip((2, 4, 6, 8), values, strict=False)
}


def results_table(
    rows: Sequence[Row],
    labels: Mapping[str, str],
    paper: Mapping[tuple[str, int], tuple[float, int]],
) -> str:
    """Ours beside the paper's, log Ẑ / ESS %, one row a method and one column a K."""
    levels = sorted({row["K"] for row in rows})
    lines = [
        "| log Ẑ / ESS % (paper's in brackets) | " + " | ".join(f"K = {k}" for k in levels) + " |"
    ]
    lines.append("|---" * (len(levels) + 1) + "|")
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = []
        for k in levels:
            row = next((row for row in rows if (row["method"], row["K"]) == (method, k)), None)
            cells.append("" if row is None else _cell(row, paper.get((method, k))))
        lines.append(f"| {labels[method]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(row: Row, paper: tuple[float, int] | None) -> str:
    ours = (
        f"{row['log_Z_hat_mean']:.3f} ± {row['log_Z_hat_std']:.3f} / {row['ess_percent']:.1f} ±"
        f" {row['ess_percent_std']:.1f}"
    )
    return ours + (f" ({paper[0]:.2f} / {paper[1]})" if paper else " (–)")


def large_k_table(rows: Sequence[Row]) -> str:
    """The numbers of `large_k_figure`."""
    lines = [
        (
            "| K | particles | log Ẑ | ESS % | µs a step | training s | temporaries level-parallel"
            " | sequential |"
        ),
        "|---" * 8 + "|",
    ]
    for r in rows:
        sizes = " | ".join(
            f"{r[n] / 1e6:.2f} MB" for n in ("level_parallel_temp_bytes", "sequential_temp_bytes")
        )
        quality = (
            f"{r['log_Z_hat_mean']:.3f} ± {r['log_Z_hat_std']:.3f} | {r['ess_percent']:.1f} ±"
            f" {r['ess_percent_std']:.1f}"
        )
        step = 1e6 * (r["step_seconds"] or np.nan)
        lines.append(
            f"| {r['K']} | {r['particles']} | {quality} | {step:.0f} | {r['train_seconds']:.0f} |"
            f" {sizes} |"
        )
    return "\n".join(lines) + "\n"


def budget_table(rows: Sequence[Row], labels: Mapping[str, str]) -> str:
    """Training budgets in particle moves, the smallest first, and which of them reach the goal."""
    lines = [
        "| | K | particles | steps | Adam | particle moves | log Ẑ | ESS % | reached |",
        "|---" * 9 + "|",
    ]
    for r in sorted(rows, key=lambda r: r["particle_moves"]):
        head = (
            f"| {labels[r['method']]} | {r['K']} | {r['particles']} | {r['iterations']} |"
            f" {r['learning_rate']:g} | "
        )
        quality = (
            f"{r['log_Z_hat_mean']:.3f} ± {r['log_Z_hat_std']:.3f} | {r['ess_percent']:.1f} ±"
            f" {r['ess_percent_std']:.1f}"
        )
        lines.append(
            f"{head}{r['particle_moves']:,} | {quality} | {'yes' if r['reached'] else 'no'} |"
        )
    return "\n".join(lines) + "\n"
