"""The demo: an NVIR* sampler learns to sample eight modes on a circle, on the CPU in well under a
minute. An assembly of the library's parts; it refuses to hold an algorithm of its own.
"""

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.evaluation.evaluate import evaluate
from nestedvi.methods import build, get_method
from nestedvi.paper.annealing.config import AnnealingConfig
from nestedvi.particles.weights import normalise
from nestedvi.plot.figures import annealing_figure, save_figure
from nestedvi.sampler.run import run
from nestedvi.storage.files import output_folder, provenance, write_json
from nestedvi.storage.locks import locked
from nestedvi.targets import TARGETS, ring, ring_modes
from nestedvi.train.fit import fit

__all__ = ["DemoConfig", "run_demo"]


@dataclass(frozen=True)
class DemoConfig:
    """The paper's annealing task with its best method."""

    method: str = "nvir-star"
    num_levels: int = 8
    num_particles: int = AnnealingConfig.budget // num_levels
    num_steps: int = AnnealingConfig.iterations
    initial_scale: float = AnnealingConfig.initial_scale
    eval_particles: int = 1000
    eval_batches: int = 50
    seed: int = 0


def run_demo(config: DemoConfig, out: str | Path, *, progress: Any = False) -> dict[str, Any]:
    """Trains, evaluates, writes `demo.json` and `demo.png`, and returns what `demo.json` holds. One
    process at a time works in a folder.
    """
    folder = output_folder(out)
    with locked(folder / ".lock", f"The output folder {folder}"):
        return _run_demo(config, folder, progress)


def _run_demo(config: DemoConfig, folder: Path, progress: Any) -> dict[str, Any]:
    key_build, key_fit, key_eval, key_draw = jax.random.split(jax.random.key(config.seed), 4)
    method = get_method(config.method)
    initial = DiagonalNormal(jnp.zeros(2), config.initial_scale)
    sampler = build(
        key_build, method, target=ring(), initial=initial, num_levels=config.num_levels
    ).sampler
    trained = fit(
        key_fit,
        sampler,
        method.make_objective(),
        num_steps=config.num_steps,
        num_particles=config.num_particles,
        progress=progress,
        checkpoint=folder / "checkpoint",
    )
    quality = evaluate(
        key_eval,
        trained.sampler,
        num_particles=config.eval_particles,
        num_batches=config.eval_batches,
    )
    draw = run(key_draw, trained.sampler, 2000, history=True)
    content = {
        "log_Z_true": TARGETS["ring"].log_Z,
        **quality._asdict(),
        "mode_shares": mode_shares(draw.particles.z, draw.particles.log_w),
        "schedule": trained.sampler.path.thetas(),
        "train_seconds": trained.seconds,
        "skipped_gradients": int(trained.skipped.sum()),
        "method": config.method,
        "config": asdict(config),
        **provenance(config.seed),
    }
    write_json(folder / "demo.json", content)
    levels = list(zip(draw.history.z, normalise(draw.history.log_w), strict=True))
    save_figure(
        annealing_figure(levels, trained.sampler.path.thetas(), limit=15), folder / "demo.png"
    )
    # The run is complete: what it was resumed from is no longer of use.
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    return content


def mode_shares(z, log_w) -> np.ndarray:
    """The share of the weight nearest to each of the eight modes; each should be 1/8."""
    distance = jnp.sum((z[:, None, :] - ring_modes()) ** 2, axis=-1)
    owner = jnp.argmin(distance, axis=1)
    return np.asarray(jnp.zeros(8).at[owner].add(normalise(log_w)))
