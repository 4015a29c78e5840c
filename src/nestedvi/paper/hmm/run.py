"""Experiment 2 (section 5.2): learned heuristic factors in a hidden Markov model, and a
linear-Gaussian model beside it.

Every row is trained, evaluated and written to `cells/` on its own; an interrupted run goes on with
the row that it was in. A reference log Z for some test instances makes every row a gap to the
truth. The assembly: each of its steps is a module beside it, and none is here.
"""

from pathlib import Path
from typing import Any

import numpy as np

from nestedvi.grid.cells import public, recorded, run_cached
from nestedvi.grid.progress import GridProgress
from nestedvi.paper.hmm.cells import (
    CostCell,
    ReferenceCell,
    RowCell,
    SeriesCell,
    cell_of,
    row_cells,
    series_cells,
)
from nestedvi.paper.hmm.config import ROWS, HMMConfig
from nestedvi.paper.hmm.cost import measure_cost
from nestedvi.paper.hmm.model import simulate
from nestedvi.paper.hmm.reference import compute_reference
from nestedvi.paper.hmm.report import (
    gap_figure,
    instances_figure,
    linear_gaussian_figure,
    linear_gaussian_table,
    results_table,
)
from nestedvi.paper.hmm.rows import run_row
from nestedvi.paper.hmm.series import run_series
from nestedvi.plot.figures import save_figure
from nestedvi.storage.files import output_folder, provenance, write_json, write_text

__all__ = ["reproduce_hmm"]

Rows = dict[str, dict[str, Any]]
Arrays = dict[str, dict[str, np.ndarray]]


def reproduce_hmm(
    config: HMMConfig, out: str | Path, *, jobs: int = 1, console: Any = None
) -> dict[str, Any]:
    """Runs the table, `jobs` rows at a time; writes `results.json`, `table.md` and the figures;
    returns the first's content.
    """
    folder = output_folder(out)
    rows, arrays = _run_cells(config, output_folder(folder / "cells"), jobs, console)
    table = [_with_gap(rows[name], arrays[name], arrays["reference"]) for name in config.rows]
    series = [public(rows[cell.name]) for cell in series_cells(config)]
    result = {
        "rows": table,
        "reference": public(rows["reference"]),
        "cost": public(rows["cost"]) if config.measure_cost else None,
        "linear_gaussian": series,
        "config": recorded(config),
        **provenance(config.seed),
    }
    learned = {n: arrays[n]["transitions"] for n in config.rows if "transitions" in arrays[n]}
    if learned:
        result["learned_transitions"] = learned
    _figures(config, folder, table, arrays, series)
    write_json(folder / "results.json", result)
    write_text(
        folder / "table.md",
        "\n\n".join([results_table(table, result["reference"]), linear_gaussian_table(series)]),
    )
    return result


def _run_cells(config: HMMConfig, folder: Path, jobs: int, console: Any) -> tuple[Rows, Arrays]:
    """Every cell's row and arrays by its name."""
    # Times of a step are those of a machine that does nothing else: first and alone.
    alone = [cell_of(CostCell, config, name="cost")] if config.measure_cost else []
    trains = [cell for cell in row_cells(config) if cell.row.trained_as is None]
    first = [cell_of(ReferenceCell, config, name="reference"), *trains, *series_cells(config)]
    # What runs the networks of another row goes after the row that trains them.
    second = [cell for cell in row_cells(config) if cell.row.trained_as is not None]
    rows: Rows = {}
    arrays: Arrays = {}
    with GridProgress(len(alone) + len(first) + len(second), console) as progress:

        def one(cell: Any) -> None:
            with progress.cell(cell.name, 1.0) as reporter:
                compute = {
                    RowCell: lambda work: run_row(cell, config.at_once, folder, reporter),
                    ReferenceCell: lambda work: compute_reference(cell),
                    CostCell: lambda work: measure_cost(cell),
                    SeriesCell: lambda work: run_series(cell, work, reporter),
                }[type(cell)]
                rows[cell.name], arrays[cell.name] = run_cached(
                    cell.name, recorded(cell), folder, compute
                )

        progress.each(one, alone, 1)
        progress.each(one, first, jobs)
        progress.each(one, second, jobs)
    return rows, arrays


def _with_gap(
    row: dict[str, Any], arrays: dict[str, np.ndarray], reference: dict[str, np.ndarray]
) -> dict[str, Any]:
    """The row with its mean log Ẑ, and the mean gap to the reference with its standard error (both
    sources of error in it).
    """
    log_Z = arrays["log_Z_hat"]
    finite = np.isfinite(log_Z)
    num = len(reference["log_Z"])
    gaps = (reference["log_Z"] - log_Z[:num])[finite[:num]]
    own = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else float("nan")
    from_reference = np.sqrt(np.sum(reference["stderr"] ** 2)) / num
    return {
        **public(row),
        "log_Z_hat_mean": log_Z[finite].mean(),
        "gap_to_reference_mean": gaps.mean(),
        "gap_to_reference_median": np.median(gaps),
        "gap_stderr": float(np.hypot(own, from_reference)),
    }


def _figures(config: HMMConfig, folder: Path, table: Any, arrays: Any, series: Any) -> None:
    eta, _, xs = simulate(config.seed, "test", config.test_instances, config.num_steps)
    index = np.array(config.shown)
    truth = {
        "x": np.asarray(xs[index]),
        "mu": np.asarray(eta.mu[index]),
        "tau": np.asarray(eta.tau[index]),
    }
    shown = [name for name in config.rows if name in ("gmm", "neural", "recursion-em")] or [
        config.rows[-1]
    ]
    draws = {ROWS[name].label: arrays[name] for name in shown}
    save_figure(instances_figure(truth, draws), folder / "instances.png")
    save_figure(gap_figure(table), folder / "gap_and_ess.png")
    save_figure(linear_gaussian_figure(series), folder / "linear_gaussian.png")
