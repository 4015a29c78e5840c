"""Experiment 1 (section 5.1): sampling a multimodal density by annealing. The whole table, every
figure, and beyond.

Every cell of the grid is trained, evaluated and written to `cells/` on its own; an interrupted run
goes on with the cell that it was in. Tables and figures are made from those files.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from nestedvi.bench.step import gradient_temp_bytes
from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.evaluation.evaluate import evaluate
from nestedvi.grid.cells import cell_key, public, run_cached
from nestedvi.kernels.base import stack
from nestedvi.methods import METHODS, build, get_method
from nestedvi.paper.annealing.quadrature import neighbour_kl
from nestedvi.paper.annealing.report import (
    budget_table,
    large_k_figure,
    large_k_table,
    results_table,
    schedule_figure,
    targets_figure,
    training_figure,
)
from nestedvi.particles.weights import normalise
from nestedvi.paths.annealing import Annealing
from nestedvi.paths.schedules import GivenSchedule, LinearSchedule
from nestedvi.plot.figures import sampling_figure, save_figure
from nestedvi.progress import GridProgress, Task
from nestedvi.sampler.nested import NestedSampler, restart
from nestedvi.sampler.run import run
from nestedvi.storage.files import output_folder, provenance, write_json, write_text
from nestedvi.targets.classic import TARGETS, get_target
from nestedvi.train.fit import Fit, fit
from nestedvi.train.orders import get_order

__all__ = ["PAPER", "AnnealingConfig", "Cell", "quick_config", "reproduce_annealing"]

PAPER: dict[tuple[str, int], tuple[float, int]] = {
    (method, k): value
    for method, values in {
        "svi": ((1.86, 51), (1.89, 47), (1.92, 32), (1.72, 25)),
        "svi-flow": ((2.06, 55),),
        "avo": ((1.86, 51), (1.96, 44), (2.01, 46), (2.05, 46)),
        "nvi": ((1.86, 51), (1.97, 45), (2.03, 45), (2.06, 41)),
        "nvir": ((1.86, 51), (1.98, 99), (2.04, 98), (2.06, 97)),
        "nvi-star": ((1.86, 51), (2.06, 51), (2.07, 54), (2.07, 54)),
        "nvir-star": ((1.86, 51), (2.06, 95), (2.07, 96), (2.08, 97)),
        "avo-flow": ((2.05, 28), (2.08, 67), (2.07, 77), (2.08, 70)),
        "nvi-star-flow": ((2.05, 28), (2.08, 81), (2.08, 78), (2.08, 70)),
    }.items()
    for k, value in zip((2, 4, 6, 8), values, strict=False)
}

_ONLY_AT = {"svi-flow": (2,), "vsmc": (8,)}
_LIMIT = 15.0
_SAMPLES, _SAMPLES_FLOW = ("avo", "nvir-star"), ("avo-flow", "nvir-star-flow")
_LEARNED = ("nvi-star", "nvir-star")
_CURVES = ("svi", "vsmc", "nvi", "nvir", "nvi-star", "nvir-star")


@dataclass(frozen=True)
class AnnealingConfig:
    """One configuration for the whole table: K · L = `budget` samples an iteration, as in the
    paper's appendix.
    """

    methods: tuple[str, ...] = (
        "svi",
        "svi-flow",
        "avo",
        "nvi",
        "nvir",
        "nvi-star",
        "nvir-star",
        "avo-flow",
        "nvi-star-flow",
        "nvir-star-flow",
        "vsmc",
    )
    levels: tuple[int, ...] = (2, 4, 6, 8)
    restarts: int = 10
    iterations: int = 20_000
    budget: int = 288
    learning_rate: float = 1e-3
    average: float | None = 0.999
    initial_scale: float = 5.0
    eval_batches: int = 100
    eval_particles: int = 100
    seed: int = 0
    order: str = "sequential"
    targets: tuple[tuple[str, float, float], ...] = (("two-moons", 2.0, 4.0), ("rings", 4.0, 8.0))
    large_levels: tuple[int, ...] = (8, 16, 32, 64, 128)
    large_restarts: int = 2
    # Method, K, particles, steps, learning rate.
    budgets: tuple[tuple[str, int, int, int, float], ...] = (
        ("nvir-star", 8, 36, 4000, 3e-3),
        ("nvir-star", 8, 36, 8000, 3e-3),
        ("nvir-star", 8, 36, 12000, 3e-3),
        ("nvir-star", 8, 36, 16000, 3e-3),
        ("nvir-star-flow", 4, 16, 3000, 4e-3),
        ("nvir-star-flow", 6, 6, 3000, 3e-3),
        ("nvir-star-flow", 6, 6, 3500, 3e-3),
        ("nvir-star-flow", 6, 6, 4000, 3e-3),
        ("nvir-star-flow", 6, 6, 5000, 3e-3),
        ("nvir-star-flow", 6, 16, 1000, 6e-3),
        ("nvir-star-flow", 8, 5, 3000, 3e-3),
        ("nvir-star-flow", 8, 6, 2000, 4e-3),
        ("nvir-star-flow", 8, 8, 2000, 4e-3),
        ("nvir-star-flow", 8, 8, 2500, 4e-3),
    )
    top_only: bool = False
    beyond: bool = True

    def __post_init__(self) -> None:
        if not self.methods or not self.levels:
            raise ValueError(
                "The annealing experiment needs at least one method and one value of K."
            )
        for name in self.methods:
            get_method(name).make_objective()
        for k in self.levels:
            if k < 2 or self.budget // k < 2:
                raise ValueError(
                    f"K must be between 2 and {self.budget // 2} (K · particles = {self.budget});"
                    f" got {k}."
                )
        if self.restarts < 1 or self.iterations < 1:
            raise ValueError(
                f"Restarts and iterations must be at least 1; got {self.restarts} and"
                f" {self.iterations}."
            )
        get_order(self.order)


def quick_config(config: AnnealingConfig) -> AnnealingConfig:
    """A coarse version of everything: minutes on two cores."""
    return replace(
        config,
        top_only=True,
        average=0.99,
        restarts=min(config.restarts, 2),
        iterations=min(config.iterations, 1000),
        eval_batches=20,
        large_levels=(8, 32),
        large_restarts=2,
        budgets=(("nvir-star", 8, 36, 500, 1e-2),),
    )


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
    average: float | None = None
    decay: bool = False
    target: str = "ring"
    initial_scale: float = 5.0
    eval_batches: int = 100
    eval_particles: int = 100
    seed: int = 0
    measure_memory: bool = False
    draw: bool = False

    @property
    def cost(self) -> float:
        """Expected time, in units of one Gaussian level of one step."""
        layers = 3.0 if METHODS[self.method].kernels == "flow" else 1.0
        return layers * self.iterations * (self.K - 1) * self.restarts * self.particles + 2e6


def _cell(config: AnnealingConfig, name: str, method: str, K: int, **changes: Any) -> Cell:
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
        yield _cell(
            config,
            f"{method}-K{k}",
            method,
            k,
            draw=k == top and method in _SAMPLES + _SAMPLES_FLOW,
        )


def target_cells(config: AnnealingConfig) -> Iterator[Cell]:
    """Two more targets, NVIR* with two intermediate densities."""
    for name, scale, _ in config.targets:
        yield _cell(
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
        yield _cell(
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
        yield _cell(
            config, f"budget-{method}-K{k}-{particles}x{iterations}-{rate:g}", method, k, **training
        )


def build_cell(cell: Cell, key) -> NestedSampler:
    """The cell's samplers, one a restart, stacked."""
    target = get_target(cell.target).build()
    initial = DiagonalNormal(jnp.zeros(2), cell.initial_scale)

    def make(k):
        return build(k, cell.method, target=target, initial=initial, num_levels=cell.K).sampler

    return stack(key, make, cell.restarts)


def run_cell(
    cell: Cell, folder: Path, reporter: Any
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains and evaluates one cell, or reads it back if it is there."""

    def compute(work: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        key_build, key_fit, key_eval = jax.random.split(cell_key(cell.seed, cell.name), 3)
        rate = (
            optax.cosine_decay_schedule(cell.learning_rate, cell.iterations)
            if cell.decay
            else cell.learning_rate
        )
        trained = fit(
            key_fit,
            build_cell(cell, key_build),
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
        return summarise(cell, trained, key_eval)

    with reporter:
        return run_cached(cell.name, asdict(cell), folder, compute)


def summarise(cell: Cell, trained: Fit, key) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
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


def rolling(ess: np.ndarray, particles: int, window: int = 100, points: int = 200) -> np.ndarray:
    """ESS % as a rolling mean over `window` steps, at about `points` steps; shape (points,
    restarts).
    """
    window = min(window, len(ess))
    total = np.cumsum(np.concatenate([np.zeros_like(ess[:1]), ess]), axis=0)
    mean = (total[window:] - total[:-window]) / window
    return 100 * mean[:: max(1, len(mean) // points)] / particles


def reproduce_annealing(
    config: AnnealingConfig, out: str | Path, *, jobs: int = 1, console: Any = None
) -> dict[str, Any]:
    """Runs the grid, `jobs` cells at a time; writes `results.json`, `table.md` and the figures;
    returns the first's content.
    """
    folder = output_folder(out)
    cells_folder = output_folder(folder / "cells")
    # What lies beyond the table is a study of NVIR*.
    beyond = config.beyond and "nvir-star" in config.methods
    groups = {
        "rows": list(table_cells(config)),
        "targets": list(target_cells(config)) if beyond else [],
        "large_k": list(large_k_cells(config)) if beyond else [],
        "budget": list(budget_cells(config)) if beyond else [],
    }
    # The longest first: a long one that begins last would leave the other processes waiting.
    cells = sorted(
        (cell for group in groups.values() for cell in group), key=lambda cell: -cell.cost
    )
    tasks = [
        Task(
            f"{METHODS[cell.method].label} K={cell.K} ({cell.name})",
            cell.cost,
            (cell, cells_folder),
        )
        for cell in cells
    ]
    began = time.perf_counter()
    with GridProgress(sum(cell.cost for cell in cells), console) as progress:
        found = dict(
            zip(
                (cell.name for cell in cells),
                progress.each_apart(run_cell, tasks, jobs),
                strict=True,
            )
        )
    seconds = time.perf_counter() - began
    rows = {name: row for name, (row, _) in found.items()}
    arrays = {name: cell_arrays for name, (_, cell_arrays) in found.items()}
    content = {name: [public(rows[cell.name]) for cell in group] for name, group in groups.items()}
    for cell, entry in zip(groups["budget"], content["budget"], strict=True):
        entry["particle_moves"] = cell.particles * (cell.K - 1) * cell.iterations
        entry["learning_rate"] = cell.learning_rate
        near = abs(entry["log_Z_hat_mean"] - TARGETS["ring"].log_Z) <= 0.01
        entry["reached"] = bool(near and entry["ess_percent"] >= 95)
    # Of this call: cells that were there already took none.
    result = {
        **content,
        "seconds": seconds,
        "config": asdict(config),
        "log_Z_true": TARGETS["ring"].log_Z,
        **provenance(config.seed),
    }
    result["neighbour_kl"] = _figures(config, folder, arrays, content)
    write_json(folder / "results.json", result)
    write_text(folder / "table.md", _tables(content))
    return result


def _tables(content: dict[str, Any]) -> str:
    labels = {name: method.label for name, method in METHODS.items()}
    parts = ["# Annealing: log Ẑ and ESS", results_table(content["rows"], labels, PAPER)]
    if content["large_k"]:
        parts += [
            "# Many levels, NVIR*, level-parallel training",
            large_k_table(content["large_k"]),
        ]
        parts += ["# Training budgets, cosine decay", budget_table(content["budget"], labels)]
    return "\n\n".join(parts)


def _figures(
    config: AnnealingConfig,
    folder: Path,
    arrays: dict[str, dict[str, np.ndarray]],
    content: dict[str, Any],
) -> dict[str, Any]:
    """Draws every figure that there are cells for; returns the KLs between neighbouring targets
    that one of them shows.
    """
    top = max(config.levels)
    here = {m: arrays[f"{m}-K{top}"] for m in config.methods if f"{m}-K{top}" in arrays}

    def label(method):
        return METHODS[method].label

    for name, methods in (("samples", _SAMPLES), ("samples_flow", _SAMPLES_FLOW)):
        shown = [(label(m), _panels(here[m])) for m in methods if m in here]
        if shown:
            save_figure(sampling_figure(shown, limit=_LIMIT), folder / f"{name}.png")
    schedules: dict[str, Any] = {"linear": np.asarray(LinearSchedule(top).betas())}
    schedules |= {label(m): here[m]["betas"] for m in _LEARNED if m in here}
    kls = {
        name: np.stack([_kl(config, b) for b in np.atleast_2d(betas)])
        for name, betas in schedules.items()
    }
    save_figure(schedule_figure(schedules, kls), folder / "schedules.png")
    curves = {label(m): here[m]["ess_rolling"] for m in _CURVES if m in here}
    if curves:
        save_figure(training_figure(curves, config.iterations), folder / "training_ess.png")
    if content["large_k"]:
        save_figure(
            targets_figure([_target_entry(arrays, *entry) for entry in config.targets]),
            folder / "targets.png",
        )
        save_figure(
            large_k_figure(content["large_k"], TARGETS["ring"].log_Z), folder / "large_k.png"
        )
    return {name: values.mean(axis=0) for name, values in kls.items()}


def _target_entry(
    arrays: dict[str, dict[str, np.ndarray]], name: str, scale: float, limit: float
) -> tuple[Any, ...]:
    found = arrays[f"target-{name}"]
    return (
        name,
        jax.vmap(get_target(name).build().log_gamma),
        found["z"][-1],
        found["weights"][-1],
        limit,
    )


def _panels(found: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray, np.ndarray]]:
    return [(f"k = {k + 1}", found["z"][k], found["weights"][k]) for k in range(len(found["z"]))]


def _kl(config: AnnealingConfig, betas: np.ndarray) -> np.ndarray:
    # A learned end point is one up to rounding; the given schedule wants it exact.
    exact = np.concatenate([[0.0], betas[1:-1], [1.0]])
    initial = DiagonalNormal(jnp.zeros(2), config.initial_scale)
    return neighbour_kl(
        Annealing(initial, get_target("ring").build(), GivenSchedule(exact)), limit=25.0
    )
