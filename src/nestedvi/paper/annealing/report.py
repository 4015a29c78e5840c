"""Which cells go into which table and figure of the annealing experiment. Everything is made from
what cells recorded: nothing is trained or sampled here. One thing is computed, because no cell
has it: the KLs between neighbouring targets of a schedule, by `quadrature`.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.methods import METHODS
from nestedvi.paper.annealing.cells import SAMPLES, SAMPLES_FLOW
from nestedvi.paper.annealing.config import AnnealingConfig
from nestedvi.paper.annealing.figures import (
    large_k_figure,
    schedule_figure,
    targets_figure,
    training_figure,
)
from nestedvi.paper.annealing.quadrature import neighbour_kl
from nestedvi.paper.annealing.tables import PAPER, budget_table, large_k_table, results_table
from nestedvi.paths.annealing import Annealing
from nestedvi.paths.schedules import GivenSchedule, LinearSchedule
from nestedvi.plot.figures import sampling_figure, save_figure
from nestedvi.targets import TARGETS, get_target

__all__ = ["draw_figures", "neighbour_kls", "tables_text"]

Arrays = dict[str, np.ndarray]

# Half the side of the square that figures show, and of the one that KLs are integrated over.
_SHOWN, _INTEGRATED = 15.0, 25.0
_LEARNED = ("nvi-star", "nvir-star")
_CURVES = ("svi", "vsmc", "nvi", "nvir", "nvi-star", "nvir-star")


def tables_text(content: dict[str, Any]) -> str:
    """The content of `table.md`: the paper's table, and what lies beyond it if it was run."""
    labels = {name: method.label for name, method in METHODS.items()}
    parts = ["# Annealing: log Ẑ and ESS", results_table(content["rows"], labels, PAPER)]
    if content["large_k"]:
        parts += [
            "# Many levels, NVIR*, level-parallel training",
            large_k_table(content["large_k"]),
        ]
        parts += ["# Training budgets, cosine decay", budget_table(content["budget"], labels)]
    return "\n\n".join(parts)


def draw_figures(
    folder: Path,
    config: AnnealingConfig,
    content: dict[str, Any],
    arrays: dict[str, Arrays],
    kls: dict[str, np.ndarray],
) -> None:
    """Draws every figure that there are cells for; `arrays` are those of each cell, by its name,
    and `kls` are those of `neighbour_kls`.
    """
    at_top = _arrays_at_top(config, arrays)
    for name, methods in (("samples", SAMPLES), ("samples_flow", SAMPLES_FLOW)):
        shown = [(METHODS[m].label, _panels(at_top[m])) for m in methods if m in at_top]
        if shown:
            save_figure(sampling_figure(shown, limit=_SHOWN), folder / f"{name}.png")
    figure = schedule_figure(_schedules(config, arrays), kls)
    save_figure(figure, folder / "schedules.png")
    curves = {METHODS[m].label: at_top[m]["ess_rolling"] for m in _CURVES if m in at_top}
    if curves:
        save_figure(training_figure(curves, config.iterations), folder / "training_ess.png")
    if content["large_k"]:
        entries = [
            _target_entry(arrays[f"target-{name}"], name, limit)
            for name, _, limit in config.targets
        ]
        save_figure(targets_figure(entries), folder / "targets.png")
        figure = large_k_figure(content["large_k"], TARGETS["ring"].known_log_Z)
        save_figure(figure, folder / "large_k.png")


def neighbour_kls(config: AnnealingConfig, arrays: dict[str, Arrays]) -> dict[str, np.ndarray]:
    """KL between neighbouring targets of each schedule at the largest K, one row a restart."""
    return {
        name: np.stack([_kls_of(config, betas) for betas in np.atleast_2d(rows)])
        for name, rows in _schedules(config, arrays).items()
    }


def _arrays_at_top(config: AnnealingConfig, arrays: dict[str, Arrays]) -> dict[str, Arrays]:
    """Arrays of the table's cells at the largest K, by method: what the paper's figures show."""
    names = {method: f"{method}-K{max(config.levels)}" for method in config.methods}
    return {method: arrays[name] for method, name in names.items() if name in arrays}


def _schedules(config: AnnealingConfig, arrays: dict[str, Arrays]) -> dict[str, np.ndarray]:
    at_top = _arrays_at_top(config, arrays)
    linear = {"linear": np.asarray(LinearSchedule(max(config.levels)).betas())}
    return linear | {METHODS[m].label: at_top[m]["betas"] for m in _LEARNED if m in at_top}


def _kls_of(config: AnnealingConfig, betas: np.ndarray) -> np.ndarray:
    # A learned end point is one up to rounding; the given schedule wants it exact.
    exact = np.concatenate([[0.0], betas[1:-1], [1.0]])
    initial = DiagonalNormal(jnp.zeros(2), config.initial_scale)
    path = Annealing(initial, get_target("ring").build(), GivenSchedule(exact))
    return neighbour_kl(path, limit=_INTEGRATED)


def _target_entry(arrays: Arrays, name: str, limit: float) -> tuple[Any, ...]:
    log_gamma = jax.vmap(get_target(name).build().log_gamma)
    return name, log_gamma, arrays["z"][-1], arrays["weights"][-1], limit


def _panels(arrays: Arrays) -> list[tuple[str, np.ndarray, np.ndarray]]:
    levels = zip(arrays["z"], arrays["weights"], strict=True)
    return [(f"k = {k}", z, weights) for k, (z, weights) in enumerate(levels, start=1)]
