"""Time to an answer beside NumPyro's NUTS, on the same models, in fresh processes of one core.

Run as: python benchmarks/vs_nuts.py --jobs 8. CPU seconds of the first answer of a process (with
all compilation, without imports) and of the second one, with another key: NUTS with 1000 steps of
warm-up and 1000 draws, `nvi.sample` with its defaults. Then a process with an empty compilation
cache, and one that finds it full. Each process is kept under results/vs-nuts/cells when it is done;
the same command goes on after Ctrl-C.
"""

import argparse
import json
import os
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from fresh import Task, peak_megabytes, run_tasks

_OUT = Path(__file__).parent.parent / "results" / "vs-nuts"
_WARMUP, _DRAWS = 1000, 1000


def answer_nuts(model: Any, args: tuple, seeds: tuple[int, ...]) -> dict[str, Any]:
    """One chain; the second run of the same object compiles nothing."""
    import jax
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    chain = MCMC(NUTS(model), num_warmup=_WARMUP, num_samples=_DRAWS, progress_bar=False)
    seconds = []
    for seed in seeds:
        began = time.process_time()
        chain.run(jax.random.key(seed), *args, extra_fields=("diverging",))
        jax.block_until_ready(chain.get_samples())
        seconds.append(time.process_time() - began)
    draws = chain.get_samples(group_by_chain=True)
    least = min(float(effective_sample_size(jax.device_get(x)).min()) for x in draws.values())
    diverging = int(chain.get_extra_fields()["diverging"].sum())
    return {"seconds": seconds, "ess": least, "diverging": diverging}


def answer_nvi(
    model: Any, args: tuple, seeds: tuple[int, ...], cache: str | bool
) -> dict[str, Any]:
    import jax

    import nestedvi as nvi

    seconds, compilation = [], []
    for seed in seeds:
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = nvi.sample(jax.random.key(seed), model, model_args=args, cache=cache)
        seconds.append(time.process_time() - began)
        compilation.append(posterior.timings.get("compilation"))
    return {
        "seconds": seconds,
        "compilation": compilation,
        "log_Z": posterior.log_Z,
        "log_Z_stderr": posterior.log_Z_stderr,
        "ess": posterior.ess,
        "diagnosis": list(posterior.diagnosis),
    }


def child(name: str, sampler: str, cache: str | None) -> None:
    """One process: two answers, or one with the cache."""
    import jax  # noqa: F401  imports are not part of an answer
    import numpyro.infer  # noqa: F401

    import nestedvi  # noqa: F401
    from nuts_models import MODELS

    try:
        model, args = MODELS[name]()
    except ImportError as error:
        print(json.dumps({"skipped": str(error)}))
        return
    if sampler == "nuts":
        result = answer_nuts(model, args, (0, 1))
    elif cache is None:
        result = answer_nvi(model, args, (0, 1), False)
    else:
        result = answer_nvi(model, args, (0,), cache)
    print(json.dumps({**result, "peak_megabytes": peak_megabytes()}))


def row_of(name: str, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The processes of a model side by side; a dict with "failed" or "skipped" where one is
    missing.
    """
    parts = {part: results[f"{name}-{part}"] for part in ("nuts", "nvi", "filling", "cached")}
    row: dict[str, Any] = {"model": name, **parts}
    for word in ("skipped", "failed"):
        said = [part[word] for part in parts.values() if word in part]
        if said:
            return {**row, word: said[0]}
    nuts, own = parts["nuts"]["seconds"], parts["nvi"]["seconds"]
    return {
        **row,
        "first_ratio": own[0] / nuts[0],
        "second_ratio": own[1] / nuts[1],
        "cached_ratio": parts["cached"]["seconds"][0] / own[0],
    }


def table(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    head = "| model | NUTS first | second | nvi first | second | cached | ratio first | second |"
    lines = [head + " cached |", "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if "first_ratio" not in row:
            why = row.get("skipped") or row.get("failed")
            lines.append(f"| {row['model']} | {why} | | | | | | | |")
            continue
        seconds = [*row["nuts"]["seconds"], *row["nvi"]["seconds"], row["cached"]["seconds"][0]]
        ratios = [row[f"{kind}_ratio"] for kind in ("first", "second", "cached")]
        cells = [row["model"], *(f"{s:.1f}" for s in seconds), *(f"{r:.2f}" for r in ratios)]
        lines.append(f"| {' | '.join(cells)} |")
    for kind in ("median", "worst"):
        ratios = [summary[f"{name}_{kind}"] for name in ("first", "second", "cached")]
        cells = ["" if r is None else f"{r:.2f}" for r in ratios]
        lines.append(f"| **{kind}** | | | | | | {' | '.join(cells)} |")
    lines += ["", "CPU seconds of fresh processes on one core, without imports."]
    return "\n".join(lines) + "\n"


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    import numpy as np

    summary: dict[str, Any] = {}
    for name in ("first", "second", "cached"):
        ratios = [row[f"{name}_ratio"] for row in rows if f"{name}_ratio" in row]
        summary[f"{name}_median"] = float(np.median(ratios)) if ratios else None
        summary[f"{name}_worst"] = float(np.max(ratios)) if ratios else None
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", help="separated by commas; all unless given")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each on its own core")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one process")
    parser.add_argument("--out", default=str(_OUT))
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "SAMPLER"), help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child, options.cache)
        return
    # What is recorded is the device that the processes use.
    os.environ["JAX_PLATFORMS"] = "cpu"
    from nestedvi.storage.files import output_folder, provenance, write_json, write_text
    from nuts_models import MODELS

    names = options.models.split(",") if options.models else list(MODELS)
    folder = output_folder(options.out)
    caches = folder / "cache"
    plain, filling, cached = [], [], []
    for name in names:
        plain += [Task(f"{name}-{s}", ("--child", name, s)) for s in ("nuts", "nvi")]
        one = ("--child", name, "nvi", "--cache", str(caches / name))
        filling.append(Task(f"{name}-filling", one))
        cached.append(Task(f"{name}-cached", one))
    results: dict[str, dict[str, Any]] = {}
    # A cache must be full before the process that finds it.
    for tasks in (plain + filling, cached):
        results |= run_tasks(
            __file__,
            tasks,
            folder / "cells",
            jobs=options.jobs,
            cores=1,
            timeout=options.timeout,
        )
    rows = [row_of(name, results) for name in names]
    summary = summarise(rows)
    content = {"summary": summary, "rows": rows, "jobs": options.jobs, **provenance(0)}
    write_json(folder / "vs_nuts.json", content)
    write_text(folder / "vs_nuts.md", table(rows, summary))
    shutil.rmtree(caches, ignore_errors=True)
    print(table(rows, summary))


if __name__ == "__main__":
    sys.exit(main())
