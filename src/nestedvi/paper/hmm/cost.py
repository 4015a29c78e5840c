"""What a training step costs: its time for K observations and for 2K, which should be twice as
long and not four times. What the training learned is thrown away.
"""

from typing import Any

import jax
import numpy as np

from nestedvi.paper.hmm.cells import CostCell
from nestedvi.paper.hmm.config import ROWS
from nestedvi.paper.hmm.model import simulate
from nestedvi.paper.hmm.program import build_program
from nestedvi.paper.hmm.training import row_objective
from nestedvi.train.amortised import fit_amortised

__all__ = ["measure_cost"]

_INSTANCES, _ITERATIONS = 64, 40


def measure_cost(cell: CostCell) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Seconds of a training step of the neural heuristic for K steps and for twice as many."""

    def step_seconds(num_steps: int) -> float:
        row = ROWS["neural"]
        trained = fit_amortised(
            jax.random.key(1),
            build_program(jax.random.key(0), row, width=cell.width, em_steps=cell.em_steps),
            simulate(cell.seed, "train", _INSTANCES, num_steps)[2],
            row_objective(row),
            num_steps=_ITERATIONS,
            num_particles=cell.train_particles,
            batch_size=cell.batch_size,
            order=cell.order,
        )
        return trained.step_seconds

    once, twice = step_seconds(cell.num_steps), step_seconds(2 * cell.num_steps)
    return {
        "K": cell.num_steps,
        "step_seconds": once,
        "step_seconds_2K": twice,
        "ratio": twice / once,
    }, {}
