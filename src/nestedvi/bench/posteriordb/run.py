"""Benchmark on other people's models: every posterior through `sample` with its defaults, twice,
each in a process of its own on one core. Its table and figure are in `report`.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nestedvi.bench.posteriordb.catalogue import POSTERIORS, get_posterior
from nestedvi.bench.posteriordb.compare import compare
from nestedvi.bench.posteriordb.data import find_folder, load_data, load_references
from nestedvi.bench.posteriordb.report import posteriordb_figure, posteriordb_table
from nestedvi.grid.cells import cell_key, public, run_cached
from nestedvi.grid.limited import Job, Outcome, run_limited
from nestedvi.grid.progress import GridProgress
from nestedvi.inference.sample import sample
from nestedvi.plot.figures import save_figure
from nestedvi.storage.files import output_folder, provenance, write_json, write_text

__all__ = ["PosteriordbConfig", "answer_posterior", "bench_posteriordb"]

Row = dict[str, Any]
Report = Callable[[Any], None]


@dataclass(frozen=True)
class PosteriordbConfig:
    """Which posteriors (none: all), and how many seconds one of them and all together may take."""

    posteriors: tuple[str, ...] = ()
    limit: float = 1200.0
    within: float = 7200.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.posteriors:
            get_posterior(name)
        if not (self.limit > 0 and self.within > 0):
            raise ValueError(
                f"Limits are seconds above zero; got {self.limit} for one posterior and"
                f" {self.within} for all."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The posteriors by name."""
        return self.posteriors or tuple(POSTERIORS)


def answer_posterior(name: str, seed: int, data_dir: Path, run: int) -> Row:
    """One answer of `sample` beside the reference: run 0 compiles, run 1 finds all compiled."""
    entry, reference = get_posterior(name), load_references(data_dir)[name]
    arguments = entry.arguments(load_data(entry.data, data_dir))
    key = jax.random.fold_in(cell_key(seed, name), run)
    began, cpu_began = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        # What `sample` warns of is in the posterior's diagnosis.
        warnings.simplefilter("ignore")
        posterior = sample(key, entry.model, model_args=arguments)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    row = {
        "cpu_seconds": cpu,
        "seconds": seconds,
        "log_Z": posterior.log_Z if entry.proper else None,
        "log_Z_stderr": posterior.log_Z_stderr if entry.proper else None,
        "ess": posterior.ess,
        "khat": posterior.khat,
        # That a prior is improper is known, and no warning of the answer.
        "diagnosis": [text for text in posterior.diagnosis if "improper" not in text],
        "timings": dict(posterior.timings),
    }
    return {**row, **compare(posterior, reference, entry.infinite_variance)}


def _first_and_second(name: str, seed: int, data_dir: Path, report: Report) -> Row:
    """Both answers. An error of the first is the caller's; the second's is kept beside the
    first.
    """
    first = answer_posterior(name, seed, data_dir, 0)
    report(first)
    try:
        second = answer_posterior(name, seed, data_dir, 1)
    except Exception as error:
        second = {"refusal": f"{type(error).__name__}: {error}"}
    return {"posterior": name, "state": "answered", "first": first, "second": second}


def _cell(name: str, seed: int, data_dir: Path, folder: Path, report: Report) -> Row:
    """The row of a posterior, computed or read back. Only answers are kept: what was refused or
    stopped is tried again.
    """
    # A core's time is compared: an accelerator has no part in it.
    jax.config.update("jax_platforms", "cpu")

    def compute(_: Path) -> tuple[Row, dict[str, np.ndarray]]:
        row = _first_and_second(name, seed, data_dir, report)
        parameters = row["first"]["parameters"].values()
        return row, {column: np.array([x[column] for x in parameters]) for column in ("mean", "sd")}

    return run_cached(name, {"posterior": name, "seed": seed}, folder, compute)[0]


def row_of(outcome: Outcome) -> Row:
    """A row from how its process ended."""
    row = {"posterior": outcome.name, "first": outcome.reported, "second": None}
    if outcome.state == "done":
        row = public(outcome.value)
    elif outcome.reported is not None:
        row["state"] = "answered"
    elif outcome.state == "stopped":
        row |= {"state": "stopped", "refusal": f"no answer within {outcome.seconds:.0f} s"}
    else:
        row |= {"state": "refused", "refusal": str(outcome.value)}
    entry = get_posterior(outcome.name)
    return {**row, "proper": entry.proper, "infinite_variance": list(entry.infinite_variance)}


def bench_posteriordb(
    config: PosteriordbConfig,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    jobs: int = 1,
    console: Any = None,
) -> dict[str, Any]:
    """Answers every posterior; writes `posteriordb.json`, `posteriordb.md` and `posteriordb.png`
    and returns the first's content. Table and JSON are written anew after every posterior, so that
    a run that is killed leaves what it had.
    """
    data, folder = find_folder(data_dir).resolve(), output_folder(out)
    cells = output_folder(folder / "cells").resolve()
    names = sorted(config.names, key=lambda name: -get_posterior(name).minutes)
    reporters: dict[str, Any] = {}
    rows: dict[str, Row] = {}

    def result() -> dict[str, Any]:
        ordered = [rows[name] for name in config.names if name in rows]
        return {"rows": ordered, "config": asdict(config), "jobs": jobs, **provenance(config.seed)}

    def started(name: str) -> None:
        reporters[name] = progress.cell(name, get_posterior(name).minutes)
        reporters[name].__enter__()

    def ended(outcome: Outcome) -> None:
        reporters.pop(outcome.name).__exit__(None, None, None)
        rows[outcome.name] = row_of(outcome)
        content = result()
        write_json(folder / "posteriordb.json", content)
        write_text(folder / "posteriordb.md", posteriordb_table(content["rows"]))

    with GridProgress(sum(get_posterior(name).minutes for name in names), console) as progress:
        run_limited(
            _cell,
            [Job(name, (name, config.seed, data, cells)) for name in names],
            at_once=jobs,
            limit=config.limit,
            within=config.within,
            on_start=started,
            on_end=ended,
        )
    content = result()
    if any(row["first"] for row in content["rows"]):
        save_figure(posteriordb_figure(content["rows"]), folder / "posteriordb.png")
    return content
