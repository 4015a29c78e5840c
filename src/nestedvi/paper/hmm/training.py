"""The networks of a row: trained once, kept as a cell of their own (json and npz), and read by
every row that runs them. It refuses to evaluate.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from nestedvi._types import Key
from nestedvi.grid.cells import recorded, run_cached
from nestedvi.paper.hmm.cells import TrainingCell
from nestedvi.paper.hmm.config import Row
from nestedvi.paper.hmm.model import simulate
from nestedvi.paper.hmm.program import HMMProgram, build_program
from nestedvi.train.amortised import fit_amortised
from nestedvi.train.objective import Objective

__all__ = ["from_arrays", "row_objective", "to_arrays", "trained_program"]


def row_objective(row: Row) -> Objective:
    """The forward KL at every level; proposals and heuristic learn."""
    return Objective("forward-kl", learn=("initial", "forward", "path"), optimise=row.optimisation)


def trained_program(
    key_build: Key, key_fit: Key, cell: TrainingCell, folder: Path, reporter: Any
) -> tuple[HMMProgram, dict[str, Any]]:
    """The trained networks of a row and what their training reported, computed or read back."""
    program = build_program(key_build, cell.row, width=cell.width, em_steps=cell.em_steps)

    def compute(work: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        xs = simulate(cell.seed, "train", cell.train_instances, cell.num_steps)[2]
        trained = fit_amortised(
            key_fit,
            program,
            program.precompute(xs),
            row_objective(cell.row),
            num_steps=cell.iterations,
            num_particles=cell.train_particles,
            batch_size=cell.batch_size,
            optimiser=optax.adam(optax.cosine_decay_schedule(cell.learning_rate, cell.iterations)),
            order=cell.order,
            progress=reporter,
            checkpoint=work,
        )
        row = {
            "dropped_in_training": trained.dropped,
            "train_seconds": trained.seconds,
            "step_seconds": trained.step_seconds,
        }
        curve = {"training_log_Z_hat": np.asarray(trained.record.log_Z_hat)}
        return row, {**to_arrays(trained.program), **curve}

    row, arrays = run_cached(f"{cell.name}-networks", recorded(cell), folder, compute)
    report = {name: row[name] for name in ("dropped_in_training", "train_seconds", "step_seconds")}
    return from_arrays(program, arrays), report


def to_arrays(program: HMMProgram) -> dict[str, np.ndarray]:
    """The arrays of a program by number, in the order of its leaves."""
    leaves = jax.tree.leaves(eqx.filter(program, eqx.is_array))
    return {f"leaf_{i}": np.asarray(x) for i, x in enumerate(leaves)}


def from_arrays(like: HMMProgram, arrays: dict[str, np.ndarray]) -> HMMProgram:
    """A program built as `like` is, with the arrays that `to_arrays` gave."""
    own, rest = eqx.partition(like, eqx.is_array)
    leaves, structure = jax.tree.flatten(own)
    kept = [jnp.asarray(arrays[f"leaf_{i}"]) for i in range(len(leaves))]
    return eqx.combine(jax.tree.unflatten(structure, kept), rest)
