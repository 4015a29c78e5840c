"""How well is log Z found on targets where it is known: ours, learned and not, beside BlackJAX's
adaptive tempered SMC.

One configuration for all targets, every run from nothing: what a run learns is in its cost.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key
from nestedvi.bench.report import errors_figure, targets_table
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.errors import UnknownNameError
from nestedvi.grid.cells import cell_key, public, run_cached
from nestedvi.inference.answer import Answer, AnswerFunction, Cost, Request
from nestedvi.inference.posterior import make_posterior
from nestedvi.inference.sample import ANSWERS
from nestedvi.plot.figures import save_figure
from nestedvi.progress import GridProgress
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
# BlackJAX tunes the metric from the particles as we do, but no step size: this one, in units of
# their spread, suits most targets.
_PEER_STEP, _PEER_MOVES, _PEER_ESS, _LEAPS = 0.3, 3, 0.8, 10


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
            find_target(name)
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


def answer_blackjax(key: Key, request: Request) -> Answer:
    """BlackJAX's adaptive tempered SMC from the same base as ours, with Hamiltonian moves in a
    metric from the particles.
    """
    import blackjax
    from blackjax.smc import resampling
    from blackjax.smc.tuning.from_particles import particles_covariance_matrix

    dim, num_particles = request.dim, request.num_particles
    base = ScaleMixture(dim)

    def covariance(z):
        return particles_covariance_matrix(z).reshape(dim, dim) + 1e-6 * jnp.eye(dim)

    def shared(z):
        return {"inverse_mass_matrix": covariance(z)[None]}

    kernel = blackjax.hmc.build_kernel()

    def move(key, state, log_density, inverse_mass_matrix):
        return kernel(key, state, log_density, _PEER_STEP, inverse_mass_matrix, _LEAPS)

    key_start, key_run = jax.random.split(key)
    start = jax.vmap(base.sample)(jax.random.split(key_start, num_particles))
    algorithm = blackjax.inner_kernel_tuning(
        smc_algorithm=blackjax.adaptive_tempered_smc,
        logprior_fn=base.log_gamma,
        loglikelihood_fn=lambda z: request.density.log_gamma(z) - base.log_gamma(z),
        mcmc_step_fn=move,
        mcmc_init_fn=blackjax.hmc.init,
        resampling_fn=resampling.systematic,
        mcmc_parameter_update_fn=lambda key, state, info: shared(state.particles),
        initial_parameter_value=shared(start),
        target_ess=_PEER_ESS,
        num_mcmc_steps=_PEER_MOVES,
    )
    step = jax.jit(algorithm.step)
    state, log_Z, levels = algorithm.init(start), 0.0, 0
    while float(state.sampler_state.tempering_param) < 1 and levels < 200:
        key_run, key_step = jax.random.split(key_run)
        state, info = step(key_step, state)
        log_Z, levels = log_Z + float(info.log_likelihood_increment), levels + 1
    log_w = jnp.log(jnp.maximum(state.sampler_state.weights, 1e-30)) + log_Z + np.log(num_particles)
    # The likelihood at every temperature; its tempering takes one value more.
    cost = Cost(0.0, levels * _PEER_MOVES * (_LEAPS + 1), 2.0 * levels)
    return Answer(state.sampler_state.particles, log_w, log_Z, float("nan"), cost=cost)


METHODS: dict[str, AnswerFunction] = {**ANSWERS, "blackjax": answer_blackjax}


def run_target(
    name: str, method: str, config: TargetsConfig
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One row: all runs of a method on a target."""
    target = find_target(name)
    request = Request(target.build(), target.dim, config.particles)
    errors, stderrs, shares, khats, costs, seconds, said = [], [], [], [], [], [], []
    for i in range(config.seeds):
        began = time.perf_counter()
        key = jax.random.fold_in(cell_key(config.seed, f"{name} {method}"), i)
        answer = METHODS[method](key, request)
        seconds.append(time.perf_counter() - began)
        posterior = make_posterior(answer.z, answer)
        errors.append(answer.log_Z - target.log_Z)
        stderrs.append(answer.log_Z_stderr)
        shares.append(100 * posterior.ess / config.particles)
        khats.append(posterior.khat)
        costs.append(answer.cost or Cost(np.nan, np.nan, np.nan))
        said.append(list(posterior.diagnosis))
    absolute = np.abs(errors)
    worst = int(np.argmax(absolute))
    row = {
        "target": name,
        "dim": target.dim,
        "method": method,
        "seeds": config.seeds,
        "particles": config.particles,
        "log_Z": target.log_Z,
        "mean_abs_error": absolute.mean(),
        "mean_error": np.mean(errors),
        "worst_error": errors[worst],
        "worst_stderr": stderrs[worst],
        "worst_diagnosis": said[worst],
        "ess_percent": np.mean(shares),
        "gradients_learning": np.mean([cost.learning for cost in costs]),
        "gradients_sampling": np.mean([cost.sampling for cost in costs]),
        "values": np.mean([cost.values for cost in costs]),
        "seconds_first": seconds[0],
        "seconds": float(np.median(seconds[1:])) if len(seconds) > 1 else seconds[0],
        "runs": [
            {"error": e, "stderr": s, "khat": k, "diagnosis": d}
            for e, s, k, d in zip(errors, stderrs, khats, said, strict=True)
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
