"""Benchmark of accuracy: errors of log Z on targets where it is known, of `sample` with and without
learning and of BlackJAX's adaptive tempered SMC. Its table and figure are in `bench.report`.

One configuration for all targets, every run from nothing: what a run learns is in its cost.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from nestedvi._types import Key
from nestedvi.bench.blackjax import answer_blackjax
from nestedvi.bench.report import errors_figure, targets_table
from nestedvi.errors import UnknownNameError
from nestedvi.grid.cells import cell_key, public, run_cached
from nestedvi.grid.progress import GridProgress
from nestedvi.inference.answer import AnswerFunction, Cost, Request
from nestedvi.inference.posterior import make_posterior
from nestedvi.inference.sample import ANSWERS
from nestedvi.plot.figures import save_figure
from nestedvi.storage.files import output_folder, provenance, write_json, write_text
from nestedvi.targets import Target, get_target, rotated

__all__ = ["METHODS", "TargetsConfig", "bench_targets"]

_TARGETS = (
    "ring",
    "gmm40",
    "funnel",
    "many-well",
    "brownian",
    "breast-cancer",
    "funnel-rotated",
    "many-well-rotated",
)
_ROTATED = "-rotated"
_SEED_OF_ROTATION = 1


@dataclass(frozen=True)
class TargetsConfig:
    """Which targets and methods, how many runs of each, and how many particles a run returns."""

    targets: tuple[str, ...] = _TARGETS
    methods: tuple[str, ...] = ("auto", "smc", "blackjax")
    seeds: int = 10
    particles: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.targets:
            _ = find_target(name).known_log_Z
        for name in self.methods:
            if name not in METHODS:
                raise UnknownNameError("method", name, METHODS)
        if self.seeds < 1 or self.particles < 20:
            raise ValueError(
                f"A benchmark needs a seed and 20 particles or more; got {self.seeds} and"
                f" {self.particles}."
            )


def find_target(name: str) -> Target:
    """A target by its name; "-rotated" turns its coordinates at random."""
    if name.endswith(_ROTATED):
        return rotated(get_target(name.removesuffix(_ROTATED)), _SEED_OF_ROTATION)
    return get_target(name)


METHODS: dict[str, AnswerFunction] = {**ANSWERS, "blackjax": answer_blackjax}


class _Run(NamedTuple):
    """A run of a method: its error, and what it says of itself; `share` is its ESS in percent."""

    error: float
    stderr: float
    share: float
    khat: float
    cost: Cost
    seconds: float
    diagnosis: list[str]


def _run(key: Key, method: str, request: Request, log_Z: float) -> _Run:
    """One answer of a method beside the known log Z."""
    began = time.perf_counter()
    answer = METHODS[method](key, request)
    seconds = time.perf_counter() - began
    posterior = make_posterior(answer.z, answer)
    return _Run(
        answer.log_Z - log_Z,
        answer.log_Z_stderr,
        100 * posterior.ess / request.num_particles,
        posterior.khat,
        answer.cost or Cost(np.nan, np.nan, np.nan),
        seconds,
        list(posterior.diagnosis),
    )


def run_target(
    name: str, method: str, config: TargetsConfig
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One row: all runs of a method on a target."""
    target, key = find_target(name), cell_key(config.seed, f"{name} {method}")
    request = Request(target.build(), target.dim, config.particles)
    runs = [
        _run(jax.random.fold_in(key, i), method, request, target.known_log_Z)
        for i in range(config.seeds)
    ]
    errors, seconds = [run.error for run in runs], [run.seconds for run in runs]
    absolute = np.abs(errors)
    worst = runs[int(np.argmax(absolute))]
    row = {
        "target": name,
        "dim": target.dim,
        "method": method,
        "seeds": config.seeds,
        "particles": config.particles,
        "log_Z": target.log_Z,
        "mean_abs_error": absolute.mean(),
        "mean_error": np.mean(errors),
        "worst_error": worst.error,
        "worst_stderr": worst.stderr,
        "worst_diagnosis": worst.diagnosis,
        "ess_percent": np.mean([run.share for run in runs]),
        "gradients_learning": np.mean([run.cost.learning for run in runs]),
        "gradients_sampling": np.mean([run.cost.sampling for run in runs]),
        "values": np.mean([run.cost.values for run in runs]),
        "seconds_first": seconds[0],
        "seconds": float(np.median(seconds[1:])) if len(seconds) > 1 else seconds[0],
        "runs": [
            {"error": run.error, "stderr": run.stderr, "khat": run.khat, "diagnosis": run.diagnosis}
            for run in runs
        ],
    }
    return row, {"errors": np.asarray(errors)}


def cells_of(config: TargetsConfig) -> Iterator[tuple[str, str]]:
    """Every target and method."""
    for target in config.targets:
        for method in config.methods:
            yield target, method


def _cell(
    name: str, method: str, config: TargetsConfig, folder: Path
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The row of a target and method, computed or read back."""
    content = {
        "target": name,
        "method": method,
        "seeds": config.seeds,
        "particles": config.particles,
        "seed": config.seed,
    }

    def compute(_: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return run_target(name, method, config)

    return run_cached(f"{name}-{method}", content, folder, compute)


def bench_targets(config: TargetsConfig, out: str | Path, *, console: Any = None) -> dict[str, Any]:
    """Runs every target and method; writes `targets.json`, `targets.md` and `targets.png`; returns
    the first's content.
    """
    folder = output_folder(out)
    cells_folder = output_folder(folder / "cells")
    cells = list(cells_of(config))
    rows = []
    with GridProgress(float(len(cells)), console) as progress:
        for name, method in cells:
            with progress.cell(f"{method} on {name}", 1.0):
                row, _ = _cell(name, method, config, cells_folder)
            rows.append(public(row))
    result = {"rows": rows, "config": asdict(config), **provenance(config.seed)}
    write_json(folder / "targets.json", result)
    write_text(folder / "targets.md", targets_table(rows))
    save_figure(errors_figure(rows), folder / "targets.png")
    return result
