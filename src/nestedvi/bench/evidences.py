"""Evidences in two independent ways: `sample` with its defaults, and bridge sampling from draws of
NumPyro's NUTS in double precision. For posteriors of posteriordb with proper priors and for the
library's own targets. It says whether the two agree and decides nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer import MCMC, NUTS

from nestedvi.bench.bridge import bridge_sampling
from nestedvi.bench.posteriordb.catalogue import POSTERIORS, get_posterior
from nestedvi.bench.posteriordb.data import find_folder, load_data
from nestedvi.densities.numpyro_model import NumpyroModel
from nestedvi.errors import UnknownNameError
from nestedvi.grid.cells import cell_key, public, run_cached
from nestedvi.grid.limited import Job, Outcome, run_limited
from nestedvi.grid.progress import GridProgress
from nestedvi.inference.sample import sample
from nestedvi.storage.files import output_folder, provenance, write_json, write_text
from nestedvi.targets.catalogue import TARGETS, get_target

__all__ = ["EvidencesConfig", "bench_evidences", "bridge_log_Z", "evidences_table"]

Row = dict[str, Any]
PROPER = tuple(name for name, entry in POSTERIORS.items() if entry.proper)


@dataclass(frozen=True)
class EvidencesConfig:
    """Which problems (none: all posteriors with proper priors), how many draws of NUTS in each of
    four chains, and how many seconds one problem and all together may take.
    """

    problems: tuple[str, ...] = ()
    draws: int = 10_000
    limit: float = 1200.0
    within: float = 7200.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.problems:
            if name not in (*PROPER, *TARGETS):
                raise UnknownNameError("problem", name, (*PROPER, *TARGETS))
        if self.draws < 100:
            raise ValueError(f"NUTS needs a hundred draws or more; got {self.draws}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The problems by name."""
        return self.problems or PROPER


def bridge_log_Z(
    seed: int, log_gamma: Callable[[jax.Array], jax.Array], start: np.ndarray, draws: int
) -> Row:
    """log Z of a log density of vectors by NUTS and bridge sampling, with what speaks against the
    chains.
    """
    kernel = NUTS(potential_fn=lambda z: -log_gamma(z))
    mcmc = MCMC(
        kernel,
        num_warmup=2000,
        num_samples=draws,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    keys = jax.random.split(jax.random.key(seed))
    near = jnp.asarray(start) + 0.1 * jax.random.normal(keys[0], (4, len(start)))
    mcmc.run(keys[1], init_params=near, extra_fields=("diverging",))
    chains = np.asarray(mcmc.get_samples(group_by_chain=True))
    batched = jax.jit(jax.vmap(log_gamma))
    bridge = bridge_sampling(np.random.default_rng(seed), batched, chains)
    halves = np.stack([chains[:, : draws // 2], chains[:, draws // 2 :]]).reshape(8, -1, len(start))
    return {
        **bridge._asdict(),
        "diverging": int(mcmc.get_extra_fields()["diverging"].sum()),
        "rhat": float(np.max(_rhat(halves))),
    }


def _rhat(chains: np.ndarray) -> np.ndarray:
    """R̂ of every coordinate, from chains cut in halves."""
    num = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt((num - 1) / num + between / within)


def _in_double(name: str, data_dir: Path | None, seed: int, draws: int) -> Row:
    """Bridge sampling of a problem by its name, in double precision."""
    with jax.enable_x64(True):
        if name in TARGETS:
            target = get_target(name)
            return bridge_log_Z(seed, target.build().log_gamma, np.zeros(target.dim), draws)
        assert data_dir is not None
        entry = get_posterior(name)
        model = NumpyroModel(entry.model, entry.arguments(load_data(entry.data, data_dir)))
        flat, unravel = ravel_pytree(model.example)
        return bridge_log_Z(seed, lambda z: model.log_gamma(unravel(z)), np.asarray(flat), draws)


def _by_auto(name: str, data_dir: Path | None, seed: int) -> Row:
    key = cell_key(seed, name)
    if name in TARGETS:
        target = get_target(name)
        posterior = sample(key, target.build(), dim=target.dim)
    else:
        assert data_dir is not None
        entry = get_posterior(name)
        posterior = sample(
            key, entry.model, model_args=entry.arguments(load_data(entry.data, data_dir))
        )
    names = ("log_Z", "log_Z_stderr", "khat")
    found = {each: getattr(posterior, each) for each in names}
    return {**found, "diagnosis": list(posterior.diagnosis)}


def _cell(
    name: str, seed: int, draws: int, data_dir: Path | None, folder: Path, report: Any
) -> Row:
    """Both ways; one that fails leaves its sentence, and the other still answers."""
    jax.config.update("jax_platforms", "cpu")

    def compute(_: Path) -> tuple[Row, dict[str, np.ndarray]]:
        row: Row = {"problem": name}
        ways: dict[str, Callable[[], Row]] = {
            "auto": lambda: _by_auto(name, data_dir, seed),
            "bridge": lambda: _in_double(name, data_dir, seed, draws),
        }
        for way, answer in ways.items():
            try:
                row[way] = answer()
            except Exception as error:
                row[way] = {"log_Z": None, "why": f"{type(error).__name__}: {error}"}
            report(row)
        known = [row[way]["log_Z"] for way in ways if row[way]["log_Z"] is not None]
        return row, {"log_Z": np.array(known)}

    content = {"problem": name, "seed": seed, "draws": draws, "way": "auto and bridge"}
    return run_cached(f"evidence-{name}", content, folder, compute)[0]


def evidences_table(rows: Sequence[Row]) -> str:
    """Markdown: both log Z with their errors, and their difference in standard errors."""
    lines = ["| problem | auto | bridge sampling | apart |", "|---|---|---|---|"]
    for row in rows:
        auto, bridge = row.get("auto") or {}, row.get("bridge") or {}
        cells = [row["problem"], _value(auto, "log_Z_stderr"), _value(bridge, "stderr"), "–"]
        if auto.get("log_Z") is not None and bridge.get("log_Z") is not None:
            apart = auto["log_Z"] - bridge["log_Z"]
            cells[3] = f"{apart / np.hypot(auto['log_Z_stderr'], bridge['stderr']):+.1f}"
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "apart: the difference in standard errors of both together."]
    return "\n".join(lines) + "\n"


def _value(way: Row, error: str) -> str:
    log_Z = way.get("log_Z")
    return "–" if log_Z is None else f"{log_Z:.4f} ± {way[error]:.4f}"


def bench_evidences(
    config: EvidencesConfig,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    jobs: int = 1,
    console: Any = None,
) -> dict[str, Any]:
    """Both ways for every problem; writes `evidences.json` and `evidences.md` after each, and
    returns the first's content.
    """
    folder = output_folder(out)
    cells = output_folder(folder / "cells").resolve()
    needs_data = any(name not in TARGETS for name in config.names)
    data = find_folder(data_dir).resolve() if needs_data else None
    rows: dict[str, Row] = {}

    def result() -> dict[str, Any]:
        ordered = [rows[name] for name in config.names if name in rows]
        return {"rows": ordered, "config": asdict(config), **provenance(config.seed)}

    def ended(outcome: Outcome) -> None:
        row = outcome.value if outcome.state == "done" else outcome.reported
        rows[outcome.name] = public(row or {"problem": outcome.name})
        progress.skip(1.0)
        content = result()
        write_json(folder / "evidences.json", content)
        write_text(folder / "evidences.md", evidences_table(content["rows"]))

    with GridProgress(float(len(config.names)), console) as progress:
        run_limited(
            _cell,
            [Job(name, (name, config.seed, config.draws, data, cells)) for name in config.names],
            at_once=jobs,
            limit=config.limit,
            within=config.within,
            on_end=ended,
        )
    return result()
