"""The linear-Gaussian part: particle filters on several series, each trained for its own, against
the Kalman filter. It knows nothing of the hidden Markov model.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

from nestedvi.evaluation.evaluate import evaluate
from nestedvi.grid.cells import cell_key
from nestedvi.paper.hmm.cells import SeriesCell
from nestedvi.paper.hmm.linear_gaussian import LinearGaussian, particle_filter
from nestedvi.sampler.nested import NestedSampler, restart
from nestedvi.train.fit import fit
from nestedvi.train.objective import Objective

__all__ = ["run_series"]


def _trained_filters(
    cell: SeriesCell, model: LinearGaussian, xs: Any, work: Path, reporter: Any
) -> tuple[NestedSampler, float]:
    """One filter a series, side by side, and the seconds that their training took."""

    def make(x):
        return particle_filter(model, x, learned=cell.learned, heuristic=cell.heuristic)

    samplers = eqx.filter_vmap(make)(xs)
    if not cell.learned:
        return samplers, 0.0
    learn = ("initial", "forward", "path") if cell.heuristic else ("initial", "forward")
    rate = optax.cosine_decay_schedule(cell.series_learning_rate, cell.series_iterations)
    trained = fit(
        cell_key(cell.seed, cell.name),
        samplers,
        Objective("forward-kl", learn=learn, optimise="partial"),
        num_steps=cell.series_iterations,
        num_particles=cell.series_particles,
        optimiser=optax.adam(rate),
        restarts=cell.series,
        progress=reporter,
        checkpoint=work,
    )
    return trained.sampler, trained.seconds


def run_series(
    cell: SeriesCell, work: Path, reporter: Any
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One kind of particle filter: the variance of log Ẑ, and its distance to the exact value."""
    model = LinearGaussian()
    keys = jax.random.split(cell_key(cell.seed, "series"), cell.series)
    xs = jax.vmap(lambda key: model.simulate(key, cell.series_steps))(keys)
    exact = np.asarray(jax.vmap(model.log_evidence)(xs))
    samplers, seconds = _trained_filters(cell, model, xs, work, reporter)
    key_eval = jax.random.fold_in(cell_key(cell.seed, cell.name), 1)

    def quality(i):
        return evaluate(
            jax.random.fold_in(key_eval, i),
            restart(samplers, i),
            num_particles=cell.series_particles,
            num_batches=cell.series_batches,
        )

    runs = [quality(i) for i in range(cell.series)]
    variance = np.array([r.lower_bound_stderr**2 * cell.series_batches for r in runs])
    row = {
        "filter": cell.name.removeprefix("series-"),
        "particles": cell.series_particles,
        "log_Z_hat_variance": variance.mean(),
        "log_Z_hat_std": np.sqrt(variance.mean()),
        "gap_to_kalman_mean": float(np.mean(exact - np.array([r.lower_bound for r in runs]))),
        "log_mean_Z_hat_error": float(np.mean(np.abs(exact - np.array([r.log_Z for r in runs])))),
        "ess_percent": float(np.mean([r.ess_percent for r in runs])),
        "train_seconds": seconds,
    }
    return row, {"variance": variance, "exact": exact}
