"""Runs the campaign: every case, method and seed, each kept when it is done. Tables are in
`campaign.report`, what is counted in `campaign.summary`.

One process does all runs of a case and method, so that they share what is compiled.
"""

import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nestedvi.bench.campaign.case import Case, Spec
from nestedvi.bench.campaign.conjugate import CONJUGATE
from nestedvi.bench.campaign.hierarchies import HIERARCHIES
from nestedvi.bench.campaign.report import campaign_table
from nestedvi.bench.campaign.shapes import SHAPES
from nestedvi.bench.campaign.simulated import SIMULATED
from nestedvi.bench.campaign.summary import summarise_campaign
from nestedvi.errors import UnknownNameError
from nestedvi.grid.cells import cell_key, public, run_cached
from nestedvi.grid.progress import GridProgress, Task
from nestedvi.inference.posterior import Posterior
from nestedvi.inference.problem import named_sites
from nestedvi.inference.sample import ANSWERS, sample
from nestedvi.storage.files import output_folder, provenance, write_json, write_text

__all__ = ["CASES", "CampaignConfig", "run_campaign"]

CASES: dict[str, Spec] = {**SHAPES, **CONJUGATE, **HIERARCHIES, **SIMULATED}
# So many elements of a site have their means recorded.
_MOST_MEANS = 8
# One thread for each process: several of them share the cores.
_ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class CampaignConfig:
    """Which cases (all unless some are named) and methods, how many runs of each, and how many
    particles a run returns.

    After `minutes` no new run begins; what is done is reported, and the same command goes on.
    """

    targets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("auto", "smc")
    seeds: int = 10
    particles: int = 2000
    jobs: int = 1
    minutes: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for names, known, kind in (
            (self.targets, CASES, "target"),
            (self.methods, ANSWERS, "method"),
        ):
            for name in names:
                if name not in known:
                    raise UnknownNameError(kind, name, known)
        if self.seeds < 1 or self.particles < 20 or self.jobs < 1:
            raise ValueError(
                "A campaign needs a seed, a process and 20 particles or more; got"
                f" {self.seeds}, {self.jobs} and {self.particles}."
            )


def run_once(case: Case, key: Any, method: str, particles: int) -> dict[str, Any]:
    """One answer against the truth, or why there was none."""
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            # Every sentence is in the diagnosis too.
            warnings.simplefilter("ignore")
            posterior = sample(
                key, case.model, method=method, num_particles=particles, **case.options
            )
    except Exception as error:  # whatever ends an answer counts as a refusal
        message = (str(error).strip().splitlines() or [""])[0]
        refused = f"{type(error).__name__}: {message}"
        return {"refused": refused, "seconds": time.perf_counter() - began}
    seconds = time.perf_counter() - began
    return {
        "error": None if case.log_Z is None else posterior.log_Z - case.log_Z,
        "log_Z": posterior.log_Z,
        "stderr": posterior.log_Z_stderr,
        "ess": posterior.ess,
        "khat": posterior.khat,
        "diagnosis": list(posterior.diagnosis),
        "means": _means(posterior, case),
        "seconds": seconds,
    }


def _means(posterior: Posterior, case: Case) -> list[dict[str, float]]:
    """What the answer says of the coordinates whose true means are known."""
    if not case.means:
        return []
    expectation = posterior.expectation(lambda particle: particle)
    mean, stderr = named_sites(expectation.mean), named_sites(expectation.stderr)
    rows = []
    for site, (truth, sd) in case.means.items():
        parts = [np.ravel(np.asarray(x, np.float64)) for x in (mean[site], stderr[site], truth, sd)]
        for m, e, true, spread in list(zip(*parts, strict=True))[:_MOST_MEANS]:
            if np.isfinite(true) and e > 0:
                rows.append({"mean": m, "stderr": e, "true": true, "sd": spread})
    return rows


def run_cell(
    name: str, method: str, config: CampaignConfig, folder: Path, until: float, reporter: Any
) -> list[dict[str, Any]]:
    """All runs of a case and method that there was time for; those of an earlier call are read
    back.
    """
    rows: list[dict[str, Any]] = []
    case: Case | None = None
    with reporter:
        reporter.start(config.seeds, 0)
        for i in range(config.seeds):
            content = {
                "target": name,
                "method": method,
                "particles": config.particles,
                "seed": config.seed,
                "run": i,
            }
            record = f"{name}-{method}-{i}"
            if time.time() > until and not (folder / f"{record}.json").exists():
                break
            if case is None:
                try:
                    case = CASES[name].build()
                except ImportError as error:
                    # Data that come with a library which is not there.
                    return [{"target": name, "method": method, "skipped": str(error)}]
            built = case

            def compute(
                _: Path, built: Case = built, i: int = i
            ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
                key = jax.random.fold_in(cell_key(config.seed, f"{name} {method}"), i)
                row = run_once(built, key, method, config.particles)
                truth = {"log_Z_true": built.log_Z, "must_say": built.must_say}
                return {"target": name, "method": method, "run": i, **truth, **row}, {}

            rows.append(public(run_cached(record, content, folder, compute)[0]))
            reporter.update(i + 1, steps_per_second=0.0)
        reporter.stop()
    # A process goes on to other cases: compiled programs would pile up.
    jax.clear_caches()
    return rows


def _tasks(config: CampaignConfig, folder: Path, until: float) -> Iterator[Task]:
    for name in config.targets or CASES:
        for method in config.methods:
            args = (name, method, config, folder, until)
            yield Task(f"{method} on {name}", 1.0, args)


def run_campaign(config: CampaignConfig, out: str | Path, *, console: Any = None) -> dict[str, Any]:
    """Runs what is not there yet; writes `campaign.json` and `campaign.md`; returns the first's
    content.
    """
    folder = output_folder(out)
    until = time.time() + 60 * (float("inf") if config.minutes is None else config.minutes)
    tasks = list(_tasks(config, output_folder(folder / "runs"), until))
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    if config.jobs > 1:
        os.environ.update(_ONE_THREAD)
    try:
        with GridProgress(float(len(tasks)), console) as progress:
            cells = progress.each_apart(run_cell, tasks, config.jobs)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    rows = [row for cell in cells for row in cell]
    abouts = {name: {"about": spec.about, "source": spec.source} for name, spec in CASES.items()}
    result = {
        "summary": summarise_campaign(rows),
        "targets": {name: abouts[name] for name in config.targets or CASES},
        "runs": rows,
        "config": asdict(config),
        **provenance(config.seed),
    }
    write_json(folder / "campaign.json", result)
    write_text(folder / "campaign.md", campaign_table(result))
    return result
