"""Experiment 3 (section 5.3): amortised inference in the BGMM-VAE on MNIST and FashionMNIST, nested
KLs against wake-sleep. The assembly: each of its steps is a module beside it.

Every cell (a data set and a method, all seeds side by side) is trained, evaluated and written to
`cells/` on its own; an interrupted run goes on with the cell that it was in, and cells trained on
other occasions are read back. A cell whose training diverges is a result as well: a row without
figures that says so.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from nestedvi.errors import NonFiniteGradientError
from nestedvi.grid.cells import cell_key, public, run_cached
from nestedvi.grid.progress import GridProgress
from nestedvi.paper.bgmm_vae.cells import Cell, cells_of
from nestedvi.paper.bgmm_vae.clusters import total_variation
from nestedvi.paper.bgmm_vae.config import BgmmVaeConfig
from nestedvi.paper.bgmm_vae.evaluation import diverged_row, floors, summarise
from nestedvi.paper.bgmm_vae.minibatches import by_class
from nestedvi.paper.bgmm_vae.mnist import CLASSES, get_dataset, load_images
from nestedvi.paper.bgmm_vae.report import (
    batch_figure,
    clusters_figure,
    curves_figure,
    results_table,
)
from nestedvi.paper.bgmm_vae.splits import Splits, shrink, split_images
from nestedvi.paper.bgmm_vae.training import train_cell
from nestedvi.plot.figures import save_figure
from nestedvi.progress import Reporter
from nestedvi.storage.files import output_folder, provenance, write_json, write_text

__all__ = ["reproduce_bgmm_vae", "run_cell"]


def reproduce_bgmm_vae(
    config: BgmmVaeConfig,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Runs every cell; writes `results.json`, `table.md` and the figures; returns the first's
    content.
    """
    folder = output_folder(out)
    cells_folder = output_folder(folder / "cells")
    splits = {name: _load_splits(config, name, data_dir, console) for name in config.datasets}
    cells = list(cells_of(config))
    rows: list[dict[str, Any]] = []
    arrays: list[dict[str, np.ndarray]] = []
    with GridProgress(sum(cell.cost for cell in cells), console) as progress:
        for cell in cells:
            label = f"{cell.settings.label} on {get_dataset(cell.dataset).label} {cell.variant}"
            with progress.cell(label, cell.cost) as reporter:
                row, drawn = run_cell(cell, splits[cell.dataset], cells_folder, reporter)
            rows.append(public(row))
            arrays.append(drawn)
    limits = {name: floors(config, each.evaluate) for name, each in splits.items()}
    result = {"rows": rows, "floors": limits, "config": asdict(config), **provenance(config.seed)}
    write_json(folder / "results.json", result)
    write_text(folder / "table.md", _tables(cells, result))
    _save_figures(config, folder, cells, arrays)
    return result


def _load_splits(
    config: BgmmVaeConfig, name: str, data_dir: str | Path | None, console: Console | None
) -> Splits:
    train, test = (shrink(split, config.shrink) for split in load_images(name, data_dir, console))
    return split_images(
        train,
        test,
        evaluate=config.split,
        held_out=config.held_out,
        train_images=config.train_images,
    )


def run_cell(
    cell: Cell, splits: Splits, folder: Path, reporter: Reporter
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains and evaluates one cell, or reads it back if it is there; one that diverged has no
    arrays.
    """

    def compute(work: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        # One key for all variants of a method: they start from the same networks and see the same
        # images.
        key = cell_key(cell.config.seed, f"{cell.dataset} {cell.settings.objective}")
        try:
            models, trained = train_cell(
                key, cell, by_class(*splits.train, CLASSES), reporter, work
            )
        except NonFiniteGradientError as error:
            return diverged_row(cell, str(error)), {}
        return summarise(cell, models, trained, splits)

    return run_cached(cell.name, cell.content, folder, compute)


def _tables(cells: list[Cell], result: dict[str, Any]) -> str:
    """A table a data set."""
    parts = []
    for name, limits in result["floors"].items():
        rows = [
            (cell.label, row)
            for cell, row in zip(cells, result["rows"], strict=True)
            if cell.dataset == name
        ]
        parts += [
            f"# {get_dataset(name).label}, {result['config']['split']} mini-batches",
            results_table(rows, limits),
        ]
    return "\n\n".join(parts)


def _save_figures(
    config: BgmmVaeConfig, folder: Path, cells: list[Cell], arrays: list[dict[str, np.ndarray]]
) -> None:
    """Of every data set, for the rows that have something to show."""
    for name in config.datasets:
        entries = [
            (
                cell.label,
                {
                    **drawn,
                    "start": cell.spent_iterations,
                    "tv": total_variation(drawn["lam"], drawn["lam_true"]),
                },
            )
            for cell, drawn in zip(cells, arrays, strict=True)
            if cell.dataset == name and drawn
        ]
        if not entries:
            continue
        classes = get_dataset(name).classes
        save_figure(batch_figure(entries, classes), folder / f"batches-{name}.png")
        save_figure(clusters_figure(entries, classes), folder / f"clusters-{name}.png")
        save_figure(curves_figure(entries, config.iterations), folder / f"training-{name}.png")
