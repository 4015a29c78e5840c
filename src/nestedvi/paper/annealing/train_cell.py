"""One cell of the annealing experiment: builds its samplers, one a restart, trains them side by
side, evaluates each, and gives a row of the table with the arrays for figures. Draws no figure.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from nestedvi._types import Key
from nestedvi.bench.step import gradient_temp_bytes
from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.evaluation.evaluate import evaluate
from nestedvi.grid.cells import Result, cell_key, recorded, run_cached
from nestedvi.kernels.base import stack
from nestedvi.methods import METHODS, build
from nestedvi.paper.annealing.cells import WINDOW, Cell
from nestedvi.particles.weights import normalise
from nestedvi.sampler.nested import NestedSampler, restart
from nestedvi.sampler.run import run
from nestedvi.targets import get_target
from nestedvi.train.fit import Fit, fit

__all__ = ["run_cell"]


def build_cell(key: Key, cell: Cell) -> NestedSampler:
    """The cell's samplers, one a restart, stacked."""
    target = get_target(cell.target).build()
    initial = DiagonalNormal(jnp.zeros(2), cell.initial_scale)

    def make(k):
        return build(k, cell.method, target=target, initial=initial, num_levels=cell.K).sampler

    return stack(key, make, cell.restarts)


def run_cell(cell: Cell, folder: Path, reporter: Any) -> Result:
    """Trains and evaluates one cell, or reads it back if it is there."""

    def compute(work: Path) -> Result:
        key_build, key_fit, key_eval = jax.random.split(cell_key(cell.seed, cell.name), 3)
        rate = (
            optax.cosine_decay_schedule(cell.learning_rate, cell.iterations)
            if cell.decay
            else cell.learning_rate
        )
        trained = fit(
            key_fit,
            build_cell(key_build, cell),
            METHODS[cell.method].make_objective(),
            num_steps=cell.iterations,
            num_particles=cell.particles,
            optimiser=optax.adam(rate),
            order=cell.order,
            restarts=cell.restarts,
            average=cell.average,
            progress=reporter,
            checkpoint=work,
        )
        return summarise(key_eval, cell, trained)

    with reporter:
        return run_cached(cell.name, recorded(cell), folder, compute)


def summarise(key: Key, cell: Cell, trained: Fit) -> Result:
    """A row of the table, and what the figures need."""
    key_eval, key_draw = jax.random.split(key)
    samplers = [restart(trained.sampler, i) for i in range(cell.restarts)]
    sizes = {"num_particles": cell.eval_particles, "num_batches": cell.eval_batches}
    results = [
        evaluate(jax.random.fold_in(key_eval, i), s, **sizes, bounds=False)
        for i, s in enumerate(samplers)
    ]
    log_Z = np.array([r.lower_bound for r in results])
    ess = np.array([r.ess_percent for r in results])
    row = {
        "method": cell.method,
        "K": cell.K,
        "particles": cell.particles,
        "restarts": cell.restarts,
        "iterations": cell.iterations,
        "log_Z_hat_mean": log_Z.mean(),
        "log_Z_hat_std": log_Z.std(),
        "ess_percent": ess.mean(),
        "ess_percent_std": ess.std(),
        "train_seconds": trained.seconds,
        "log_Z_hat_restarts": log_Z,
        "ess_percent_restarts": ess,
        "skipped_gradients": int(trained.skipped.sum()),
    }
    if cell.measure_memory:
        objective = METHODS[cell.method].make_objective()
        for order in ("level-parallel", "sequential"):
            size = gradient_temp_bytes(samplers[0], objective, cell.particles, order)
            row[f"{order.replace('-', '_')}_temp_bytes"] = size
        # The first chunks hold the compilation; the steady rate is what K changes.
        row["step_seconds"] = trained.step_seconds
    arrays = {"ess_rolling": rolling(trained.record.ess, cell.particles), "betas": _betas(samplers)}
    if cell.draw:
        history = run(key_draw, samplers[0], 2000, history=True).history
        arrays |= {"z": np.asarray(history.z), "weights": np.asarray(normalise(history.log_w))}
    return row, arrays


def _betas(samplers: list[NestedSampler]) -> np.ndarray:
    return np.stack([np.asarray(s.path.thetas()) for s in samplers])


def rolling(ess: np.ndarray, particles: int, window: int = WINDOW, points: int = 200) -> np.ndarray:
    """ESS % as a rolling mean over `window` steps, at about `points` steps; shape (points,
    restarts).
    """
    window = min(window, len(ess))
    total = np.cumsum(np.concatenate([np.zeros_like(ess[:1]), ess]), axis=0)
    mean = (total[window:] - total[:-window]) / window
    return 100 * mean[:: max(1, len(mean) // points)] / particles
