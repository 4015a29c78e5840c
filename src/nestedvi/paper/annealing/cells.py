"""The paper's table as a list of cells: a method at a K, several restarts at once. Nothing is
trained here: what a cell computes is in `train_cell`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nestedvi.methods import METHODS
from nestedvi.paper.annealing.config import AnnealingConfig

__all__ = ["SAMPLES", "SAMPLES_FLOW", "WINDOW", "Cell", "make_cell", "table_cells"]

# Steps that a training curve is averaged over.
WINDOW = 100

# Methods that the paper has at one K only.
_ONLY_AT = {"svi-flow": (2,), "vsmc": (8,)}
# Methods whose particles are shown level by level, with Gaussian kernels and with flows.
SAMPLES, SAMPLES_FLOW = ("avo", "nvir-star"), ("avo-flow", "nvir-star-flow")


@dataclass(frozen=True)
class Cell:
    """One training of several restarts: a method at a K, on a target."""

    name: str
    method: str
    K: int
    particles: int
    restarts: int
    iterations: int
    order: str
    learning_rate: float
    average: float | None
    initial_scale: float
    eval_batches: int
    eval_particles: int
    seed: int
    decay: bool = False
    target: str = "ring"
    measure_memory: bool = False
    draw: bool = False

    @property
    def cost(self) -> float:
        """Expected time, in units of one Gaussian level of one step."""
        layers = 3.0 if METHODS[self.method].kernels == "flow" else 1.0
        return layers * self.iterations * (self.K - 1) * self.restarts * self.particles + 2e6


def make_cell(config: AnnealingConfig, name: str, method: str, K: int, **changes: Any) -> Cell:
    """A cell with the configuration's values where `changes` says nothing else."""
    shared = (
        "restarts",
        "iterations",
        "order",
        "learning_rate",
        "average",
        "initial_scale",
        "eval_batches",
        "eval_particles",
        "seed",
    )
    values = (
        {field: getattr(config, field) for field in shared}
        | {"particles": config.budget // K}
        | changes
    )
    return Cell(name, method, K, **values)


def table_cells(config: AnnealingConfig) -> Iterator[Cell]:
    """The paper's table, largest K first: the figures are made of those cells."""
    top = max(config.levels)
    usual = (top,) if config.top_only else config.levels
    places = [
        (k, method)
        for method in config.methods
        for k in _ONLY_AT.get(method, usual)
        if k in config.levels
    ]
    for k, method in sorted(places, key=lambda place: -place[0]):
        yield make_cell(
            config,
            f"{method}-K{k}",
            method,
            k,
            draw=k == top and method in SAMPLES + SAMPLES_FLOW,
        )
