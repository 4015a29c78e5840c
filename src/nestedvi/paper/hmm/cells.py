"""The cells of the HMM experiment: what is computed once and kept, and everything that each result
depends on. Nothing is computed here.
"""

from dataclasses import dataclass
from typing import Any

from nestedvi.paper.hmm.config import ROWS, HMMConfig, Row

__all__ = [
    "CostCell",
    "ReferenceCell",
    "RowCell",
    "SeriesCell",
    "TrainingCell",
    "cell_of",
    "row_cells",
    "series_cells",
]


def cell_of(cls: Any, config: HMMConfig, **values: Any) -> Any:
    """A cell of class `cls`: the given `values`, and the configuration's for all other fields."""
    names = set(cls.__dataclass_fields__) - set(values)
    return cls(**{name: getattr(config, name) for name in names}, **values)


@dataclass(frozen=True)
class TrainingCell:
    """Everything that the networks of a row depend on."""

    name: str
    row: Row
    num_steps: int
    train_instances: int
    iterations: int
    train_particles: int
    batch_size: int
    learning_rate: float
    width: int
    em_steps: int
    order: str
    seed: int


@dataclass(frozen=True)
class RowCell:
    """Everything that a row of the table depends on."""

    name: str
    row: Row
    training: TrainingCell
    test_instances: int
    particles: int
    refresh_every: int
    refresh_steps: int
    refresh_scale: float
    shown: tuple[int, ...]


def row_cells(config: HMMConfig) -> list[RowCell]:
    """The rows of a configuration, each with the training that it runs (another row's, where it
    has none of its own).
    """

    def make(name):
        trained = ROWS[name].trained_as or name
        training = cell_of(TrainingCell, config, name=trained, row=ROWS[trained])
        return cell_of(RowCell, config, name=name, row=ROWS[name], training=training)

    return [make(name) for name in config.rows]


@dataclass(frozen=True)
class ReferenceCell:
    """Everything that the reference depends on."""

    name: str
    num_steps: int
    em_steps: int
    test_instances: int
    references: int
    reference_runs: int
    reference_particles: int
    reference_moves: int
    reference_ess_share: float
    reference_stderr: float
    reference_rounds: int
    seed: int


@dataclass(frozen=True)
class SeriesCell:
    """Everything that a row of the linear-Gaussian model depends on."""

    name: str
    learned: bool
    heuristic: bool
    series: int
    series_steps: int
    series_iterations: int
    series_learning_rate: float
    series_particles: int
    series_batches: int
    seed: int


def series_cells(config: HMMConfig) -> list[SeriesCell]:
    """The three kinds of filter."""
    kinds = {
        "bootstrap": (False, False),
        "learned proposal": (True, False),
        "learned proposal and heuristic": (True, True),
    }

    def make(name, learned, heuristic):
        return cell_of(
            SeriesCell, config, name=f"series-{name}", learned=learned, heuristic=heuristic
        )

    return [make(name, *flags) for name, flags in kinds.items()]


@dataclass(frozen=True)
class CostCell:
    """Everything that the cost of a step depends on."""

    name: str
    num_steps: int
    train_particles: int
    batch_size: int
    width: int
    em_steps: int
    order: str
    seed: int
