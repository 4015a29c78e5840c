"""Experiment 2 (section 5.2): learned heuristic factors in a hidden Markov model, and a
linear-Gaussian model beside it.

Every row is trained, evaluated and written to `cells/` on its own; an interrupted run goes on with
the row that it was in. A reference log Z for some test instances makes every row a gap to the
truth.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from nestedvi.errors import UnknownNameError
from nestedvi.evaluation.evaluate import evaluate
from nestedvi.evaluation.instances import evaluate_instances
from nestedvi.grid.cells import cell_key, fingerprint, public, run_cached
from nestedvi.grid.progress import GridProgress
from nestedvi.paper.hmm.linear_gaussian import LinearGaussian, particle_filter
from nestedvi.paper.hmm.model import (
    BackwardRecursion,
    ClusterKernel,
    ClusterRefresh,
    ExpectationMaximisation,
    GaussianHMM,
    HMMProgram,
    LogPrecision,
    MixtureHeuristic,
    NeuralStatistics,
    by_mean,
)
from nestedvi.paper.hmm.report import (
    gap_figure,
    instances_figure,
    linear_gaussian_figure,
    linear_gaussian_table,
    results_table,
)
from nestedvi.particles.genealogy import trajectories
from nestedvi.particles.weights import log_Z_hat_stderr
from nestedvi.paths.global_variables import AbstractMessages, NoMessages
from nestedvi.plot.figures import save_figure
from nestedvi.sampler.nested import restart
from nestedvi.sampler.run import run
from nestedvi.smc.random_walk import tempered_smc
from nestedvi.storage.files import output_folder, provenance, write_atomic, write_json, write_text
from nestedvi.train.amortised import fit_amortised
from nestedvi.train.fit import fit
from nestedvi.train.objective import Objective

__all__ = ["ROWS", "HMMConfig", "Row", "quick_hmm_config", "reproduce_hmm"]


_REFERENCE_STDERR = 0.04
_REFERENCE_ROUNDS = 3


@dataclass(frozen=True)
class Row:
    """A row of the table: a heuristic, how it is optimised, which proposal for η, and what is added
    when it is run.
    """

    label: str
    heuristic: str
    optimisation: str = "partial"
    encoder: str = "statistics"
    symmetric: bool = False
    guided: bool = False
    refresh: bool = False
    trained_as: str | None = None


ROWS: dict[str, Row] = {
    "none": Row("no heuristic", "none"),
    "gmm": Row("Gaussian mixture", "gmm"),
    "neural": Row("neural, partial", "neural"),
    "neural-full": Row("neural, full", "neural", optimisation="full"),
    "neural-names": Row("neural + all names of clusters", "neural", symmetric=True),
    "gmm-em": Row("Gaussian mixture + EM proposal", "gmm", encoder="em", symmetric=True),
    "neural-em": Row("neural + EM proposal", "neural", encoder="em", symmetric=True),
    "recursion-em": Row(
        "recursion (sees z_k) + EM proposal", "recursion", encoder="em", symmetric=True, guided=True
    ),
    "recursion-em-refresh": Row(
        "recursion + EM proposal + refresh of η",
        "recursion",
        encoder="em",
        symmetric=True,
        guided=True,
        refresh=True,
        trained_as="recursion-em",
    ),
}
"""The first four are the paper's; each of the others adds to a row above it."""


@dataclass(frozen=True)
class HMMConfig:
    """One configuration for the whole table."""

    rows: tuple[str, ...] = tuple(ROWS)
    num_steps: int = 200
    train_instances: int = 10_000
    test_instances: int = 2_000
    particles: int = 1_000
    iterations: int = 5_000
    train_particles: int = 64
    batch_size: int = 16
    learning_rate: float = 1e-3
    width: int = 128
    order: str = "two-phase"
    refresh_every: int = 20
    references: int = 100
    reference_runs: int = 6
    reference_particles: int = 1_000
    reference_moves: int = 20
    shown: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    at_once: int = 20
    measure_cost: bool = True
    series: int = 10
    series_steps: int = 50
    series_iterations: int = 4_000
    series_particles: int = 100
    series_batches: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("The HMM experiment needs at least one row.")
        for name in self.rows:
            if name not in ROWS:
                raise UnknownNameError("row of the HMM table", name, ROWS)
        if self.num_steps % self.refresh_every:
            raise ValueError(
                f"`refresh_every` must divide the {self.num_steps} steps; got {self.refresh_every}."
            )
        if self.references > self.test_instances:
            raise ValueError(
                f"References are computed for test instances: at most {self.test_instances}; got"
                f" {self.references}."
            )
        if min(self.iterations, self.test_instances, self.particles, self.references) < 1:
            raise ValueError(
                "Iterations, test instances, references and particles must be at least 1."
            )


def quick_hmm_config(config: HMMConfig) -> HMMConfig:
    """A coarse version of everything: minutes on two cores."""
    wanted = ("none", "gmm", "neural", "recursion-em", "recursion-em-refresh")
    return replace(
        config,
        rows=tuple(name for name in config.rows if name in wanted) or config.rows,
        num_steps=50,
        train_instances=1_000,
        test_instances=40,
        particles=100,
        iterations=min(config.iterations, 200),
        train_particles=32,
        batch_size=8,
        learning_rate=3e-3,
        width=32,
        refresh_every=10,
        references=10,
        reference_runs=2,
        reference_particles=300,
        reference_moves=10,
        shown=(0, 1),
        at_once=10,
        measure_cost=False,
        series=2,
        series_iterations=500,
        series_batches=50,
    )


@dataclass(frozen=True)
class _Training:
    """Everything that a trained row depends on."""

    name: str
    row: Row
    num_steps: int
    train_instances: int
    test_instances: int
    particles: int
    iterations: int
    train_particles: int
    batch_size: int
    learning_rate: float
    width: int
    order: str
    refresh_every: int
    shown: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class _Reference:
    """Everything that the reference depends on."""

    name: str
    num_steps: int
    test_instances: int
    references: int
    reference_runs: int
    reference_particles: int
    reference_moves: int
    seed: int


@dataclass(frozen=True)
class _Cost:
    """Everything that the cost of a step depends on."""

    name: str
    num_steps: int
    train_particles: int
    batch_size: int
    width: int
    order: str
    seed: int


@dataclass(frozen=True)
class _Series:
    """Everything that a row of the linear-Gaussian model depends on."""

    name: str
    learned: bool
    heuristic: bool
    series: int
    series_steps: int
    series_iterations: int
    series_particles: int
    series_batches: int
    seed: int


def _pick(cls: Any, config: HMMConfig, **values: Any) -> Any:
    """A cell with the configuration's values where nothing else is said."""
    names = set(cls.__dataclass_fields__) - set(values)
    return cls(**{name: getattr(config, name) for name in names}, **values)


def build_program(row: Row, key: Any, width: int) -> HMMProgram:
    """The networks of a row, untrained."""
    model = GaussianHMM()
    key_heuristic, key_encoder, key_kernel = jax.random.split(key, 3)
    heuristics: dict[str, Callable[[], AbstractMessages]] = {
        "none": NoMessages,
        "gmm": MixtureHeuristic,
        "neural": lambda: MixtureHeuristic.neural(key=key_heuristic, width=width),
        "recursion": lambda: BackwardRecursion(model.num_clusters, key=key_heuristic, width=width),
    }
    make = {"statistics": NeuralStatistics, "em": ExpectationMaximisation}[row.encoder]
    encoder = make(model, key=key_encoder, width=width, symmetric=row.symmetric)
    kernel = ClusterKernel(key=key_kernel, width=width, guided=row.guided)
    return HMMProgram(encoder, kernel, heuristics[row.heuristic](), model)


def simulate(seed: int, part: str, num: int, num_steps: int) -> tuple[Any, Any, Any]:
    """Clusters, states and observations of `num` instances; the first ones do not depend on how
    many there are.
    """
    keys = jax.vmap(lambda i: jax.random.fold_in(cell_key(seed, part), i))(jnp.arange(num))
    return jax.jit(jax.vmap(lambda key: GaussianHMM().simulate(key, num_steps)))(keys)


def _program(
    cell: _Training, keys: Any, folder: Path, work: Path, reporter: Any
) -> tuple[HMMProgram, dict[str, Any], Any]:
    """The trained networks of a row, what its training reported, and log Ẑ at every step; saved,
    and read by rows that only run them otherwise."""
    key_build, key_fit = keys
    name = cell.row.trained_as or cell.name
    kept, report = folder / f"{name}.eqx", folder / f"{name}.json"
    program = build_program(cell.row, key_build, cell.width)
    row = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    # The networks of another configuration must not pass for this one's.
    same = row.get("fingerprint") == fingerprint(asdict(replace(cell, name=name, row=ROWS[name])))
    if cell.row.trained_as is not None and kept.exists() and same:
        told = {
            field: row[field] for field in ("dropped_in_training", "train_seconds", "step_seconds")
        }
        return eqx.tree_deserialise_leaves(kept, program), told, np.zeros(0)
    trained = fit_amortised(
        key_fit,
        program,
        program.look(simulate(cell.seed, "train", cell.train_instances, cell.num_steps)[2]),
        Objective(
            "forward-kl", learn=("initial", "forward", "path"), optimise=cell.row.optimisation
        ),
        num_steps=cell.iterations,
        num_particles=cell.train_particles,
        batch_size=cell.batch_size,
        optimiser=optax.adam(optax.cosine_decay_schedule(cell.learning_rate, cell.iterations)),
        order=cell.order,
        progress=reporter,
        checkpoint=work,
    )
    write_atomic(kept, lambda path: eqx.tree_serialise_leaves(path, trained.program))
    told = {
        "dropped_in_training": trained.dropped,
        "train_seconds": trained.seconds,
        "step_seconds": trained.step_seconds,
    }
    return trained.program, told, trained.record.log_Z_hat


def _train_row(
    cell: _Training, at_once: int, folder: Path, work: Path, reporter: Any
) -> tuple[dict[str, Any], Any]:
    *keys, key_eval, key_draw = jax.random.split(
        cell_key(cell.seed, cell.row.trained_as or cell.name), 4
    )
    program, told, curve = _program(cell, keys, folder, work, reporter)
    test = program.look(simulate(cell.seed, "test", cell.test_instances, cell.num_steps)[2])
    refresh = ClusterRefresh(GaussianHMM()) if cell.row.refresh else None
    began = time.perf_counter()
    found = evaluate_instances(
        key_eval,
        program,
        test,
        num_particles=cell.particles,
        at_once=at_once,
        refresh=refresh,
        every=cell.refresh_every,
    )
    test_seconds = time.perf_counter() - began
    row = {
        "name": cell.name,
        "label": cell.row.label,
        "heuristic": cell.row.heuristic,
        "optimisation": (
            cell.row.optimisation if cell.row.heuristic in ("neural", "recursion") else "proposals"
        ),
        "ess_percent": 100 * found.ess.mean() / cell.particles,
        "distinct_eta_mean": found.distinct.mean(),
        "instances": cell.test_instances,
        "particles": cell.particles,
        "non_finite": int(np.sum(~np.isfinite(found.log_Z_hat))),
        "test_seconds": test_seconds,
        **told,
    }
    arrays = {"log_Z_hat": found.log_Z_hat, "distinct": found.distinct, "ess": found.ess}
    arrays |= {"training_log_Z_hat": np.asarray(curve)}
    if isinstance(program.heuristic, BackwardRecursion):
        arrays["transitions"] = np.exp(jax.nn.log_softmax(program.heuristic.log_T))
    arrays |= _draws(key_draw, program, test.xs[np.array(cell.shown)], cell.particles)
    return row, arrays


@eqx.filter_jit
def _draw(key: Any, program: HMMProgram, xs: Any, num_particles: int) -> Any:
    """One particle of the posterior with all of its states: η and z_{1:K}."""
    key_run, key_pick = jax.random.split(key)
    result = run(key_run, program(xs), num_particles, history=True)
    pick = jax.random.categorical(key_pick, result.particles.log_w)
    states = trajectories(result.history.z.state, result.ancestors)[1:, pick]
    return jax.tree.map(lambda x: x[pick], result.particles.z.eta), states


def _draws(key: Any, program: HMMProgram, data: Any, num_particles: int) -> dict[str, np.ndarray]:
    found = [
        _draw(jax.random.fold_in(key, i), program, xs, num_particles) for i, xs in enumerate(data)
    ]
    eta, states = jax.tree.map(lambda *x: np.stack(x), *found)
    return {"mu": eta.mu, "tau": eta.tau, "states": states}


def _reference(cell: _Reference) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """log Z of the first test instances by tempered SMC over η with the exact likelihood inside.

    It starts from a wide proposal around the modes that Baum-Welch finds, all names of clusters and
    the prior included. Instances whose runs disagree are done again with more particles and moves.
    """
    model = GaussianHMM()
    key_build, key_run = jax.random.split(cell_key(cell.seed, cell.name))
    encoder = ExpectationMaximisation(model, key=key_build, width=1)
    xs = simulate(cell.seed, "test", cell.test_instances, cell.num_steps)[2][: cell.references]
    log_Z, stderr, temperatures = (np.full(cell.references, np.nan) for _ in range(3))
    todo, rounds = np.arange(cell.references), 0
    while len(todo) and rounds < _REFERENCE_ROUNDS:
        keys = jax.random.split(
            jax.random.fold_in(key_run, rounds), (len(todo), cell.reference_runs)
        )
        sizes = {
            "num_particles": cell.reference_particles * 4**rounds,
            "num_moves": cell.reference_moves * 2**rounds,
        }
        found, levels = _reference_runs(keys, xs[todo], encoder, **sizes)
        log_Z[todo], stderr[todo] = (np.asarray(x) for x in jax.vmap(log_Z_hat_stderr)(found))
        temperatures[todo] = np.asarray(levels).mean(axis=1)
        todo, rounds = np.flatnonzero(~(stderr <= _REFERENCE_STDERR)), rounds + 1
    row = {
        "instances": cell.references,
        "log_Z_mean": log_Z.mean(),
        "stderr_mean": stderr.mean(),
        "stderr_max": stderr.max(),
        "share_within_0.05": float(np.mean(stderr <= 0.05)),
        "temperatures_mean": temperatures.mean(),
        "rounds": rounds,
    }
    return row, {"log_Z": log_Z, "stderr": stderr}


@eqx.filter_jit
def _reference_runs(
    keys: Any, xs: Any, encoder: ExpectationMaximisation, *, num_particles: int, num_moves: int
) -> Any:
    """Several runs of every instance: log Ẑ and the number of temperatures."""
    model = GaussianHMM()

    def several(inputs):
        keys, xs = inputs
        proposal = encoder(model, xs)
        initial = LogPrecision(proposal)

        def log_ratio(z):
            eta = initial.clusters(z)
            return model.log_prior(eta) + model.log_likelihood(eta, xs) - proposal.log_gamma(eta)

        sizes = {"num_particles": num_particles, "num_moves": num_moves}
        runs = jax.vmap(
            lambda key: tempered_smc(
                key, initial, log_ratio, **sizes, ess_share=0.8, canonical=by_mean
            )
        )(keys)
        return runs.log_Z_hat, runs.num_levels

    return jax.lax.map(several, (keys, xs), batch_size=min(20, xs.shape[0]))


def _cost(cell: _Cost) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Seconds of a training step of the neural heuristic for K steps and for twice as many."""

    def step_seconds(num_steps: int) -> float:
        program = build_program(ROWS["neural"], jax.random.key(0), cell.width)
        data = simulate(cell.seed, "train", 64, num_steps)[2]
        objective = Objective(
            "forward-kl", learn=("initial", "forward", "path"), optimise="partial"
        )
        trained = fit_amortised(
            jax.random.key(1),
            program,
            data,
            objective,
            num_steps=40,
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


def _train_series(
    cell: _Series, work: Path, reporter: Any
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One kind of particle filter on several series of the linear-Gaussian model, against the
    Kalman filter.
    """
    model = LinearGaussian()
    keys = jax.random.split(cell_key(cell.seed, "series"), cell.series)
    xs = jax.vmap(lambda key: model.simulate(key, cell.series_steps))(keys)
    exact = np.asarray(jax.vmap(model.log_evidence)(xs))

    def make(x):
        return particle_filter(model, x, learned=cell.learned, heuristic=cell.heuristic)

    samplers, seconds = eqx.filter_vmap(make)(xs), 0.0
    if cell.learned:
        learn = ("initial", "forward", "path") if cell.heuristic else ("initial", "forward")
        trained = fit(
            cell_key(cell.seed, cell.name),
            samplers,
            Objective("forward-kl", learn=learn, optimise="partial"),
            num_steps=cell.series_iterations,
            num_particles=cell.series_particles,
            optimiser=optax.adam(optax.cosine_decay_schedule(2e-2, cell.series_iterations)),
            restarts=cell.series,
            progress=reporter,
            checkpoint=work,
        )
        samplers, seconds = trained.sampler, trained.seconds
    key_eval = jax.random.fold_in(cell_key(cell.seed, cell.name), 1)
    particles, batches = cell.series_particles, cell.series_batches

    def quality(i):
        return evaluate(
            jax.random.fold_in(key_eval, i),
            restart(samplers, i),
            num_particles=particles,
            num_batches=batches,
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


def _series_cells(config: HMMConfig) -> list[_Series]:
    kinds = {
        "bootstrap": (False, False),
        "learned proposal": (True, False),
        "learned proposal and heuristic": (True, True),
    }

    def make(name, learned, heuristic):
        return _pick(_Series, config, name=f"series-{name}", learned=learned, heuristic=heuristic)

    return [make(name, *flags) for name, flags in kinds.items()]


def reproduce_hmm(
    config: HMMConfig, out: str | Path, *, jobs: int = 1, console: Any = None
) -> dict[str, Any]:
    """Runs the table, `jobs` rows at a time; writes `results.json`, `table.md` and the figures;
    returns the first's content.
    """
    folder = output_folder(out)
    cells_folder = output_folder(folder / "cells")
    reference_cell = _pick(_Reference, config, name="reference")
    trainings = [_pick(_Training, config, name=name, row=ROWS[name]) for name in config.rows]
    # What runs a trained program goes after the one that trains it.
    # Its times are of a machine that does nothing else, so it goes first and alone.
    alone = [_pick(_Cost, config, name="cost")] if config.measure_cost else []
    first = [
        reference_cell,
        *(t for t in trainings if t.row.trained_as is None),
        *_series_cells(config),
    ]
    second = [t for t in trainings if t.row.trained_as is not None]
    rows: dict[str, dict[str, Any]] = {}
    arrays: dict[str, dict[str, np.ndarray]] = {}
    with GridProgress(len(alone) + len(first) + len(second), console) as progress:

        def one(cell: Any) -> None:
            with progress.cell(cell.name, 1.0) as reporter:
                compute = {
                    _Training: lambda work: _train_row(
                        cell, config.at_once, cells_folder, work, reporter
                    ),
                    _Reference: lambda work: _reference(cell),
                    _Cost: lambda work: _cost(cell),
                    _Series: lambda work: _train_series(cell, work, reporter),
                }[type(cell)]
                rows[cell.name], arrays[cell.name] = run_cached(
                    cell.name, asdict(cell), cells_folder, compute
                )

        progress.each(one, alone, 1)
        progress.each(one, first, jobs)
        progress.each(one, second, jobs)
    reference = arrays["reference"]
    table = [_with_gap(rows[name], arrays[name], reference) for name in config.rows]
    series = [public(rows[cell.name]) for cell in _series_cells(config)]
    result = {
        "rows": table,
        "reference": public(rows["reference"]),
        "cost": public(rows["cost"]) if alone else None,
        "linear_gaussian": series,
        "config": asdict(config),
        **provenance(config.seed),
    }
    if any("transitions" in arrays[name] for name in config.rows):
        result["learned_transitions"] = {
            n: arrays[n]["transitions"] for n in config.rows if "transitions" in arrays[n]
        }
    _figures(config, folder, table, arrays, series)
    write_json(folder / "results.json", result)
    write_text(
        folder / "table.md",
        "\n\n".join([results_table(table, result["reference"]), linear_gaussian_table(series)]),
    )
    return result


def _with_gap(
    row: dict[str, Any], found: dict[str, np.ndarray], reference: dict[str, np.ndarray]
) -> dict[str, Any]:
    """The row with its mean log Ẑ, and the mean gap to the reference with its standard error (both
    sources of error in it).
    """
    log_Z = found["log_Z_hat"]
    finite = np.isfinite(log_Z)
    num = len(reference["log_Z"])
    gaps = (reference["log_Z"] - log_Z[:num])[finite[:num]]
    own = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else float("nan")
    from_reference = np.sqrt(np.sum(reference["stderr"] ** 2)) / num
    return {
        **public(row),
        "log_Z_hat_mean": log_Z[finite].mean(),
        "gap_to_reference_mean": gaps.mean(),
        "gap_to_reference_median": np.median(gaps),
        "gap_stderr": float(np.hypot(own, from_reference)),
    }


def _figures(config: HMMConfig, folder: Path, table: Any, arrays: Any, series: Any) -> None:
    eta, _, xs = simulate(config.seed, "test", config.test_instances, config.num_steps)
    index = np.array(config.shown)
    truth = {
        "x": np.asarray(xs[index]),
        "mu": np.asarray(eta.mu[index]),
        "tau": np.asarray(eta.tau[index]),
    }
    shown = [name for name in config.rows if name in ("gmm", "neural", "recursion-em")] or [
        config.rows[-1]
    ]
    found = {ROWS[name].label: arrays[name] for name in shown}
    save_figure(instances_figure(truth, found), folder / "instances.png")
    save_figure(gap_figure(table), folder / "gap_and_ess.png")
    save_figure(linear_gaussian_figure(series), folder / "linear_gaussian.png")
