"""Experiment 1 (section 5.1): sampling a multimodal density by annealing. The whole table, every
figure, and beyond.

Every cell of the grid is trained, evaluated and written to `cells/` on its own; an interrupted run
goes on with the cell that it was in. Tables and figures are made from those files. The assembly: it
holds no algorithm.
"""

import time
from pathlib import Path
from typing import Any

from nestedvi.grid.cells import Result, public, recorded
from nestedvi.grid.progress import GridProgress, Task
from nestedvi.methods import METHODS
from nestedvi.paper.annealing.beyond import budget_cells, budget_row, large_k_cells, target_cells
from nestedvi.paper.annealing.cells import Cell, table_cells
from nestedvi.paper.annealing.config import AnnealingConfig
from nestedvi.paper.annealing.report import draw_figures, neighbour_kls, tables_text
from nestedvi.paper.annealing.train_cell import run_cell
from nestedvi.storage.files import output_folder, provenance, write_json, write_text
from nestedvi.targets import TARGETS

__all__ = ["reproduce_annealing"]


def reproduce_annealing(
    config: AnnealingConfig, out: str | Path, *, jobs: int = 1, console: Any = None
) -> dict[str, Any]:
    """Runs the grid, `jobs` cells at a time; writes `results.json`, `table.md` and the figures;
    returns the first's content.
    """
    folder = output_folder(out)
    groups = _groups(config)
    began = time.perf_counter()
    results = _run_cells(groups, output_folder(folder / "cells"), jobs, console)
    # Of this call: cells that were there already took none.
    seconds = time.perf_counter() - began
    content = {
        name: [public(results[cell.name][0]) for cell in cells] for name, cells in groups.items()
    }
    content["budget"] = [
        budget_row(cell, row) for cell, row in zip(groups["budget"], content["budget"], strict=True)
    ]
    arrays = {name: cell_arrays for name, (_, cell_arrays) in results.items()}
    kls = neighbour_kls(config, arrays)
    draw_figures(folder, config, content, arrays, kls)
    result = {
        **content,
        "seconds": seconds,
        "config": recorded(config),
        "log_Z_true": TARGETS["ring"].log_Z,
        **provenance(config.seed),
        "neighbour_kl": {name: values.mean(axis=0) for name, values in kls.items()},
    }
    write_json(folder / "results.json", result)
    write_text(folder / "table.md", tables_text(content))
    return result


def _groups(config: AnnealingConfig) -> dict[str, list[Cell]]:
    """Every cell, by the part of `results.json` that it goes to."""
    # What lies beyond the table is a study of NVIR*.
    beyond = config.beyond and "nvir-star" in config.methods
    return {
        "rows": list(table_cells(config)),
        "targets": list(target_cells(config)) if beyond else [],
        "large_k": list(large_k_cells(config)) if beyond else [],
        "budget": list(budget_cells(config)) if beyond else [],
    }


def _run_cells(
    groups: dict[str, list[Cell]], folder: Path, jobs: int, console: Any
) -> dict[str, Result]:
    """The row and arrays of every cell, by its name."""
    # The longest first: a long one that begins last would leave the other processes waiting.
    cells = sorted(
        (cell for group in groups.values() for cell in group), key=lambda cell: -cell.cost
    )
    tasks = [
        Task(f"{METHODS[cell.method].label} K={cell.K} ({cell.name})", cell.cost, (cell, folder))
        for cell in cells
    ]
    with GridProgress(sum(cell.cost for cell in cells), console) as progress:
        results = progress.each_apart(run_cell, tasks, jobs)
    return {cell.name: result for cell, result in zip(cells, results, strict=True)}
