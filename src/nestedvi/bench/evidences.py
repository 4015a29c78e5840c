"""Evidences in two independent ways: `sample` with its defaults, and bridge sampling from draws of
NumPyro's NUTS in double precision. For posteriors of posteriordb with proper priors and for the
library's own targets. It says how far the two are apart; whether they agree is `published`'s.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from nestedvi.bench.chains import bridge_log_Z
from nestedvi.bench.posteriordb.catalogue import POSTERIORS, get_posterior
from nestedvi.bench.posteriordb.data import find_folder, load_data
from nestedvi.densities.numpyro_model import NumpyroModel
from nestedvi.errors import UnknownNameError
from nestedvi.grid.cells import cell_key, public, read_cached, run_cached
from nestedvi.grid.limited import Job, Outcome, run_limited
from nestedvi.grid.progress import GridProgress
from nestedvi.inference.sample import sample
from nestedvi.precision import double_precision
from nestedvi.storage.files import output_folder, provenance, write_json, write_text
from nestedvi.targets.catalogue import MEASURED, TARGETS, get_target

__all__ = [
    "LARGEST_RHAT",
    "WAYS",
    "EvidencesConfig",
    "bench_evidences",
    "errors_apart",
    "evidences_table",
    "together",
]

Row = dict[str, Any]
WAYS = ("auto", "bridge")
# Chains of NUTS agree up to this R̂.
LARGEST_RHAT = 1.01
PROPER = tuple(name for name, entry in POSTERIORS.items() if entry.proper)
# Two more whose log Z is known otherwise, of the kind of those that are measured: they show what
# the two ways are worth.
ALL = (*PROPER, *MEASURED, "breast-cancer", "seeds")
# Minutes on one core where they are more than one.
_LONG = {
    ("german-credit-sparse", "auto"): 20.0,
    ("volatility", "auto"): 20.0,
    ("sonar", "auto"): 15.0,
    ("hudson_lynx_hare-lotka_volterra", "bridge"): 9.0,
    ("german-credit-sparse", "bridge"): 6.0,
    ("ionosphere", "auto"): 5.0,
    ("volatility", "bridge"): 5.0,
    ("gp_pois_regr-gp_pois_regr", "auto"): 4.0,
    ("diamonds-diamonds", "bridge"): 3.0,
    ("gp_pois_regr-gp_pois_regr", "bridge"): 3.0,
    ("one_comp_mm_elim_abs-one_comp_mm_elim_abs", "bridge"): 3.0,
    ("cox", "bridge"): 3.0,
}


@dataclass(frozen=True)
class EvidencesConfig:
    """Which problems (none: all posteriors with proper priors and all targets that need it), how
    many draws of NUTS in each of four chains, and how many seconds one way of one problem and all
    together may take.

    A way answers again, with another seed each time, until the mean of its answers has the standard
    error `stderr`, but not more than `repeats` times.
    """

    problems: tuple[str, ...] = ()
    draws: int = 10_000
    stderr: float = 0.01
    repeats: int = 10
    limit: float = 1200.0
    within: float = 7200.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.problems:
            if name not in (*PROPER, *TARGETS):
                raise UnknownNameError("problem", name, (*PROPER, *TARGETS))
        if self.draws < 100:
            raise ValueError(f"NUTS needs a hundred draws or more; got {self.draws}.")
        if self.repeats < 1 or not self.stderr > 0:
            raise ValueError(
                "A way answers once or more, up to a standard error above zero; got"
                f" repeats={self.repeats} and stderr={self.stderr}."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The problems by name."""
        return self.problems or ALL


def _by_bridge(name: str, data_dir: Path | None, seed: int, draws: int) -> Row:
    """Bridge sampling of a problem by its name, in double precision."""
    with double_precision():
        if name in TARGETS:
            target = get_target(name)
            return bridge_log_Z(seed, target.build().log_gamma, np.zeros(target.dim), draws)
        model = NumpyroModel(*_model_and_arguments(name, data_dir))
        flat, unravel = ravel_pytree(model.example)
        return bridge_log_Z(seed, lambda z: model.log_gamma(unravel(z)), np.asarray(flat), draws)


def _by_auto(name: str, data_dir: Path | None, seed: int, repeat: int) -> Row:
    key = jax.random.fold_in(cell_key(seed, name), repeat)
    with warnings.catch_warnings():
        # What `sample` warns of is in the posterior's diagnosis.
        warnings.simplefilter("ignore")
        if name in TARGETS:
            target = get_target(name)
            posterior = sample(key, target.build(), dim=target.dim)
        else:
            model, arguments = _model_and_arguments(name, data_dir)
            posterior = sample(key, model, model_args=arguments)
    return {
        "log_Z": posterior.log_Z,
        "stderr": posterior.log_Z_stderr,
        "khat": posterior.khat,
        "diagnosis": list(posterior.diagnosis),
    }


def _model_and_arguments(name: str, data_dir: Path | None) -> tuple[Any, tuple[Any, ...]]:
    assert data_dir is not None
    entry = get_posterior(name)
    return entry.model, entry.arguments(load_data(entry.data, data_dir))


def _content(name: str, way: str, config: EvidencesConfig, repeat: int) -> dict[str, Any]:
    """Everything that an answer depends on."""
    content = {"problem": name, "way": way, "seed": config.seed, "repeat": repeat}
    return content | ({"draws": config.draws} if way == "bridge" else {})


def _cell(
    name: str, way: str, config: EvidencesConfig, data_dir: Path | None, folder: Path, report: Any
) -> Row:
    """One way's answers to a problem, computed or read back, as one. Only answers are kept: what
    failed or was stopped is tried again.
    """
    jax.config.update("jax_platforms", "cpu")
    rows: list[Row] = []
    while not _is_enough(rows, config):
        repeat = len(rows)

        def compute(_: Path, repeat: int = repeat) -> tuple[Row, dict[str, np.ndarray]]:
            began = time.perf_counter()
            if way == "auto":
                row = _by_auto(name, data_dir, config.seed, repeat)
            else:
                # Seeds of other problems and runs are small numbers.
                row = _by_bridge(name, data_dir, config.seed + 1000 * repeat, config.draws)
            row["seconds"] = time.perf_counter() - began
            return row, {"log_Z": np.array(row["log_Z"])}

        content = _content(name, way, config, repeat)
        rows.append(public(run_cached(_cell_name(name, way, repeat), content, folder, compute)[0]))
    return together(rows)


def _is_enough(rows: Sequence[Row], config: EvidencesConfig) -> bool:
    if not rows:
        return False
    return len(rows) >= config.repeats or together(rows)["stderr"] <= config.stderr


def together(rows: Sequence[Row]) -> Row:
    """Answers of one way with seeds of their own as one: the mean of Ẑ, with the standard error
    that they state or their scatter, whichever is larger. Of what speaks against an answer all is
    kept. Chains that do not agree count only where all of them do not; `left_out` says how many.
    """
    of_all, rows = rows, [row for row in rows if row.get("rhat", 1.0) <= LARGEST_RHAT] or rows
    log_Z, stderr = (np.array([row[name] for row in rows]) for name in ("log_Z", "stderr"))
    mean = float(np.logaddexp.reduce(log_Z) - np.log(len(rows)))
    share = np.exp(log_Z - mean) / len(rows)
    error = float(np.linalg.norm(share * stderr))
    if len(rows) > 1:
        error = max(error, float(np.std(share, ddof=1) * len(rows) ** 0.5))
    combined: Row = {**rows[0], "log_Z": mean, "stderr": error}
    for name in ("khat", "rhat"):
        if name in combined:
            combined[name] = max(row[name] for row in rows)
    for name in ("seconds", "diverging"):
        if name in combined:
            combined[name] = sum(row[name] for row in rows)
    if "diagnosis" in combined:
        combined["diagnosis"] = list(dict.fromkeys(x for row in rows for x in row["diagnosis"]))
    combined["left_out"] = len(of_all) - len(rows)
    return {**combined, "answers": [[row["log_Z"], row["stderr"]] for row in rows]}


def _known(name: str, way: str, config: EvidencesConfig, folder: Path) -> list[Row]:
    """The answers of one way that are kept."""
    rows: list[Row] = []
    while not _is_enough(rows, config):
        repeat = len(rows)
        content = _content(name, way, config, repeat)
        known = read_cached(_cell_name(name, way, repeat), content, folder)
        if known is None:
            break
        rows.append(public(known[0]))
    return rows


def _cell_name(name: str, way: str, repeat: int) -> str:
    return f"evidence-{name}-{way}-{repeat}"


def evidences_table(rows: Sequence[Row]) -> str:
    """Markdown: both log Z with their errors, and their difference in standard errors."""
    lines = ["| problem | auto | bridge sampling | apart |", "|---|---|---|---|"]
    for row in rows:
        auto, bridge = row.get("auto") or {}, row.get("bridge") or {}
        apart = errors_apart(row)
        cells = [row["problem"], _value(auto), _value(bridge), "–"]
        if apart is not None:
            cells[3] = f"{apart:+.1f}"
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "apart: the difference in standard errors of both together."]
    return "\n".join(lines) + "\n"


def errors_apart(row: Row) -> float | None:
    """auto's log Z less the bridge's, in standard errors of both together; None where one is
    missing.
    """
    auto, bridge = (row.get(way) or {} for way in WAYS)
    if auto.get("log_Z") is None or bridge.get("log_Z") is None:
        return None
    return float((auto["log_Z"] - bridge["log_Z"]) / np.hypot(auto["stderr"], bridge["stderr"]))


def _value(way: Row) -> str:
    log_Z = way.get("log_Z")
    return "–" if log_Z is None else f"{log_Z:.4f} ± {way['stderr']:.4f}"


def bench_evidences(
    config: EvidencesConfig,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    jobs: int = 1,
    console: Any = None,
) -> dict[str, Any]:
    """Both ways for every problem, each in a process of its own; writes `evidences.json` and
    `evidences.md` after each, and returns the first's content.
    """
    folder = output_folder(out)
    cells = output_folder(folder / "cells").resolve()
    needs_data = any(name not in TARGETS for name in config.names)
    data = find_folder(data_dir).resolve() if needs_data else None
    wanted = sorted(
        ((name, way) for name in config.names for way in WAYS), key=lambda each: -_minutes(*each)
    )
    # What is there already counts, also where time does not suffice for the rest.
    answers: dict[tuple[str, str], Row] = {}
    left: dict[str, tuple[str, str]] = {}
    for each in wanted:
        known = _known(*each, config, cells)
        if known:
            answers[each] = together(known)
        if not _is_enough(known, config):
            left[f"evidence-{'-'.join(each)}"] = each

    def write() -> dict[str, Any]:
        rows = [_row(name, answers) for name in config.names]
        content = {"rows": rows, "config": asdict(config), **provenance(config.seed)}
        write_json(folder / "evidences.json", content)
        write_text(folder / "evidences.md", evidences_table(rows))
        return content

    def ended(outcome: Outcome) -> None:
        each = left[outcome.name]
        # Of what was stopped or failed, the answers before count.
        known = [] if outcome.state == "done" else _known(*each, config, cells)
        answers[each] = together(known) if known else _answer(outcome)
        progress.skip(_minutes(*each))
        write()

    with GridProgress(sum(_minutes(*each) for each in left.values()) or 1.0, console) as progress:
        run_limited(
            _cell,
            [Job(name, (*each, config, data, cells)) for name, each in left.items()],
            at_once=jobs,
            limit=config.limit,
            within=config.within,
            on_end=ended,
        )
    return write()


def _answer(outcome: Outcome) -> Row:
    """A way's answer, or why there is none."""
    if outcome.state == "done":
        return public(outcome.value)
    if outcome.state == "stopped":
        return {"log_Z": None, "why": f"no answer within {outcome.seconds:.0f} s"}
    return {"log_Z": None, "why": str(outcome.value)}


def _row(name: str, answers: dict[tuple[str, str], Row]) -> Row:
    missing = {"log_Z": None, "why": "not begun in the time given"}
    return {"problem": name, **{way: answers.get((name, way), missing) for way in WAYS}}


def _minutes(name: str, way: str) -> float:
    """Roughly what a core takes: long ones go first."""
    return _LONG.get((name, way), 1.0)
