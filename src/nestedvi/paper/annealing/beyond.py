"""What lies beyond the paper's table, all of it a study of NVIR*: further targets, many levels, and
training budgets. Cells like those of the table, with other settings; nothing is trained here.
"""

from collections.abc import Iterator
from typing import Any

from nestedvi.paper.annealing.cells import Cell, make_cell
from nestedvi.paper.annealing.config import AnnealingConfig
from nestedvi.targets import TARGETS

__all__ = ["budget_cells", "budget_row", "large_k_cells", "target_cells"]

# A budget suffices if log Ẑ is this near to log Z and ESS % at least so much.
_NEAR, _ENOUGH_ESS = 0.01, 95


def target_cells(config: AnnealingConfig) -> Iterator[Cell]:
    """Two more targets, NVIR* with two intermediate densities."""
    for name, scale, _ in config.targets:
        yield make_cell(
            config,
            f"target-{name}",
            "nvir-star",
            4,
            restarts=1,
            target=name,
            initial_scale=scale,
            draw=True,
        )


def large_k_cells(config: AnnealingConfig) -> Iterator[Cell]:
    """Many levels, trained level-parallel with the particles of K = 8."""
    for k in config.large_levels:
        shape = {"particles": config.budget // 8, "restarts": config.large_restarts}
        yield make_cell(
            config,
            f"large-K{k}",
            "nvir-star",
            k,
            **shape,
            order="level-parallel",
            measure_memory=True,
        )


def budget_cells(config: AnnealingConfig) -> Iterator[Cell]:
    """Short trainings with a cosine decay of the learning rate to zero."""
    for method, k, particles, iterations, rate in config.budgets:
        training = {
            "iterations": iterations,
            "particles": particles,
            "learning_rate": rate,
            "decay": True,
            "average": None,
        }
        yield make_cell(
            config, f"budget-{method}-K{k}-{particles}x{iterations}-{rate:g}", method, k, **training
        )


def budget_row(cell: Cell, row: dict[str, Any]) -> dict[str, Any]:
    """The row of a budget's cell with what it cost and whether that sufficed."""
    near = abs(row["log_Z_hat_mean"] - TARGETS["ring"].log_Z) <= _NEAR
    return {
        **row,
        "particle_moves": cell.particles * (cell.K - 1) * cell.iterations,
        "learning_rate": cell.learning_rate,
        "reached": bool(near and row["ess_percent"] >= _ENOUGH_ESS),
    }
