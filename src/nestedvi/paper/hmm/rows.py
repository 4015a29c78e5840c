"""A row of the table: its trained program on every test instance, and posterior draws for the
figure. The distance to the reference is not known here: `run` adds it.
"""

import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nestedvi._types import Key
from nestedvi.evaluation.instances import InstanceEvaluation, evaluate_instances
from nestedvi.grid.cells import cell_key
from nestedvi.paper.hmm.cells import RowCell
from nestedvi.paper.hmm.heuristics import BackwardRecursion
from nestedvi.paper.hmm.model import GaussianHMM, simulate
from nestedvi.paper.hmm.program import HMMProgram
from nestedvi.paper.hmm.refresh import ClusterRefresh
from nestedvi.paper.hmm.training import trained_program
from nestedvi.particles.genealogy import trajectories
from nestedvi.sampler.run import run

__all__ = ["run_row"]


def run_row(
    cell: RowCell, at_once: int, folder: Path, reporter: Any
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains the row's networks, or reads them from `folder`, and runs them on the test
    instances.
    """
    training = cell.training
    key_build, key_fit, key_eval, key_draw = jax.random.split(
        cell_key(training.seed, training.name), 4
    )
    program, report = trained_program(key_build, key_fit, training, folder, reporter)
    test = program.precompute(
        simulate(training.seed, "test", cell.test_instances, training.num_steps)[2]
    )
    evaluation, test_seconds = _evaluate(key_eval, cell, program, test, at_once)
    row = {
        "name": cell.name,
        "label": cell.row.label,
        "heuristic": cell.row.heuristic,
        "optimisation": (
            cell.row.optimisation if cell.row.heuristic in ("neural", "recursion") else "proposals"
        ),
        "ess_percent": 100 * evaluation.ess.mean() / cell.particles,
        "distinct_eta_mean": evaluation.distinct.mean(),
        "instances": cell.test_instances,
        "particles": cell.particles,
        "non_finite": int(np.sum(~np.isfinite(evaluation.log_Z_hat))),
        "test_seconds": test_seconds,
        **report,
    }
    arrays = {
        "log_Z_hat": evaluation.log_Z_hat,
        "distinct": evaluation.distinct,
        "ess": evaluation.ess,
    }
    if isinstance(program.heuristic, BackwardRecursion):
        arrays["transitions"] = np.exp(jax.nn.log_softmax(program.heuristic.log_T))
    arrays |= _draws(key_draw, program, test.xs[np.array(cell.shown)], cell.particles)
    return row, arrays


def _evaluate(
    key: Key, cell: RowCell, program: HMMProgram, test: Any, at_once: int
) -> tuple[InstanceEvaluation, float]:
    """Every test instance once, and the seconds that it took."""
    refresh = None
    if cell.row.refresh:
        refresh = ClusterRefresh(GaussianHMM(), cell.refresh_steps, cell.refresh_scale)
    began = time.perf_counter()
    evaluation = evaluate_instances(
        key,
        program,
        test,
        num_particles=cell.particles,
        at_once=at_once,
        refresh=refresh,
        every=cell.refresh_every,
    )
    return evaluation, time.perf_counter() - began


@eqx.filter_jit
def _draw(key: Key, program: HMMProgram, xs: Any, num_particles: int) -> Any:
    """One particle of the posterior with all of its states: η and z_{1:K}."""
    key_run, key_pick = jax.random.split(key)
    result = run(key_run, program(xs), num_particles, history=True)
    pick = jax.random.categorical(key_pick, result.particles.log_w)
    states = trajectories(result.history.z.state, result.ancestors)[1:, pick]
    return jax.tree.map(lambda x: x[pick], result.particles.z.eta), states


def _draws(key: Key, program: HMMProgram, data: Any, num_particles: int) -> dict[str, np.ndarray]:
    """One posterior draw for each of some series."""
    draws = [
        _draw(jax.random.fold_in(key, i), program, xs, num_particles) for i, xs in enumerate(data)
    ]
    eta, states = jax.tree.map(lambda *x: np.stack(x), *draws)
    return {"mu": eta.mu, "tau": eta.tau, "states": states}
