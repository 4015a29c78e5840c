"""`nvi.sample` against dimension: error of log Z, time and memory, each case in a fresh process of
two cores.

Run as: python benchmarks/size.py --jobs 8. Gaussian-process regression (100, 300, 1000 dimensions)
has a closed form, a linear-Gaussian state space (60, 500) the Kalman filter. Stochastic volatility
(103, 1003) is compared with particle filters under importance sampling of the parameters, a way
that shares nothing with the library. Each process is kept under results/size/cells when it is done.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fresh import Task, peak_megabytes, run_tasks

_OUT = Path(__file__).parent.parent / "results" / "size"
# Model, its arguments, its dimension, and log Z where it is known.
Built = tuple[Callable, tuple[Any, ...], int, float | None]


def process(num: int) -> Built:
    """y = f + noise with f = L u, u ~ N(0, I), at `num` inputs."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from scipy import stats

    rng = np.random.default_rng(num)
    x = np.linspace(0, 10, num)
    k = np.exp(-0.5 * ((x[:, None] - x) / 0.7) ** 2) + 1e-4 * np.eye(num)
    root = np.linalg.cholesky(k)
    y = root @ rng.normal(size=num) + 0.3 * rng.normal(size=num)

    def model(root, y):
        u = numpyro.sample("u", dist.Normal(jnp.zeros(len(y)), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(root @ u, 0.3), obs=y)

    log_Z = stats.multivariate_normal(np.zeros(num), k + 0.09 * np.eye(num)).logpdf(y)
    return model, (root, y), num, float(log_Z)


def kalman_log_Z(y: np.ndarray, phi: float, step: float, noise: float) -> float:
    """Of x_t ~ N(φ x_{t−1}, step²) from x_0 = 0, y_t ~ N(x_t, noise²)."""
    mean, variance, log_Z = 0.0, 0.0, 0.0
    for value in y:
        mean, variance = phi * mean, phi**2 * variance + step**2
        total = variance + noise**2
        log_Z += -0.5 * np.log(2 * np.pi * total) - 0.5 * (value - mean) ** 2 / total
        gain = variance / total
        mean, variance = mean + gain * (value - mean), (1 - gain) * variance
    return float(log_Z)


def state_space(steps: int) -> Built:
    """States as a user writes them, each given the one before."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    rng = np.random.default_rng(steps)
    x, y = 0.0, []
    for _ in range(steps):
        x = 0.9 * x + 0.5 * rng.normal()
        y.append(x + 0.8 * rng.normal())

    def model(y):
        def step(x, value):
            x = numpyro.sample("x", dist.Normal(0.9 * x, 0.5))
            numpyro.sample("y", dist.Normal(x, 0.8), obs=value)
            return x, None

        scan(step, 0.0, y)

    return model, (np.array(y),), steps, kalman_log_Z(np.array(y), 0.9, 0.5, 0.8)


def volatility(steps: int) -> Built:
    from nestedvi.bench.campaign.simulated import volatility_data, volatility_model

    return volatility_model, (volatility_data(steps),), steps + 3, None


CASES: dict[str, Callable[[], Built]] = {
    "process-100": lambda: process(100),
    "process-300": lambda: process(300),
    "process-1000": lambda: process(1000),
    "state-space-60": lambda: state_space(60),
    "state-space-500": lambda: state_space(500),
    "volatility-100": lambda: volatility(100),
    "volatility-1000": lambda: volatility(1000),
}
# Draws of the parameters and particles of each filter.
FILTERS = {"volatility-100": (100, 8000, 800), "volatility-1000": (1000, 1500, 4000)}


def child(name: str, method: str) -> None:
    """One process: two answers of a case, or its other way."""
    if method == "filter":
        from campaign_references import volatility as by_filters

        began = time.perf_counter()
        log_Z, stderr = by_filters(np.random.default_rng(1), *FILTERS[name])
        seconds = time.perf_counter() - began
        print(json.dumps({"log_Z": log_Z, "stderr": stderr, "seconds": seconds}))
        return
    import jax

    import nestedvi as nvi

    model, args, dim, truth = CASES[name]()
    runs = []
    before = peak_megabytes()
    for seed in range(2):
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = nvi.sample(jax.random.key(seed), model, model_args=args, method=method)
        runs.append(
            {
                "log_Z": posterior.log_Z,
                "stderr": posterior.log_Z_stderr,
                "error": None if truth is None else posterior.log_Z - truth,
                "ess": posterior.ess,
                "diagnosis": list(posterior.diagnosis),
                "seconds": time.perf_counter() - began,
            }
        )
    peak = peak_megabytes()
    result = {"dim": dim, "log_Z_true": truth, "runs": runs}
    print(json.dumps({**result, "peak_megabytes": peak, "imports_megabytes": before}))


def rows_of(
    names: list[str], methods: list[str], results: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """A row for each case and method; where the truth is a filter's, its error counts too."""
    rows = []
    for name in names:
        other = results.get(f"{name}-filter")
        for method in methods:
            row = {"case": name, "method": method, **results[f"{name}-{method}"]}
            if other is not None and "failed" not in other and "failed" not in row:
                row["other_way"] = other
                for run in row["runs"]:
                    run["error"] = run["log_Z"] - other["log_Z"]
            rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| case | dim | method | errors | standard errors | seconds, first and second | peak MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['case']} | | {row['method']} | {row['failed']} | | | |")
            continue
        runs = row["runs"]
        errors = [f"{run['error']:+.4f}" if run["error"] is not None else "" for run in runs]
        warned = "" if not any(run["diagnosis"] for run in runs) else " (warned)"
        cells = [
            row["case"],
            str(row["dim"]),
            row["method"],
            ", ".join(errors) + warned,
            ", ".join(f"{run['stderr']:.4f}" for run in runs),
            ", ".join(f"{run['seconds']:.0f}" for run in runs),
            f"{row['peak_megabytes']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    others = {
        f"{row['case']}: {row['other_way']['log_Z']:.3f} ± {row['other_way']['stderr']:.3f}"
        for row in rows
        if "other_way" in row
    }
    lines += ["", "Wall seconds on two cores."]
    if others:
        lines += [
            "Errors of stochastic volatility are those against particle filters, which have errors"
            f" of their own ({'; '.join(sorted(others))})."
        ]
    return "\n".join(lines) + "\n"


def memory_figure(rows: list[dict[str, Any]]) -> Any:
    """Peak memory against dimension, a line for each kind of case and method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if "failed" not in row:
            kind = f"{row['case'].rsplit('-', 1)[0]}, {row['method']}"
            lines.setdefault(kind, []).append((row["dim"], row["peak_megabytes"]))
    for kind, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=kind)
    axes.set(xscale="log", yscale="log", xlabel="dimensions", ylabel="peak memory, MB")
    axes.legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", help="separated by commas; all unless given")
    parser.add_argument("--methods", default="auto", help="separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="processes of two cores each")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for one process")
    parser.add_argument("--out", default=str(_OUT))
    parser.add_argument("--child", nargs=2, metavar=("CASE", "METHOD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    from nestedvi.plot.figures import save_figure
    from nestedvi.storage.files import output_folder, provenance, write_json, write_text

    names = options.cases.split(",") if options.cases else list(CASES)
    methods = options.methods.split(",")
    folder = output_folder(options.out)
    tasks = [
        Task(f"{name}-{method}", ("--child", name, method))
        for name in names
        for method in [*methods, *(["filter"] if name in FILTERS else [])]
    ]
    results = run_tasks(
        __file__, tasks, folder / "cells", jobs=options.jobs, cores=2, timeout=options.timeout
    )
    rows = rows_of(names, methods, results)
    write_json(folder / "size.json", {"rows": rows, "jobs": options.jobs, **provenance(0)})
    write_text(folder / "size.md", table(rows))
    save_figure(memory_figure(rows), folder / "memory.png")
    print(table(rows))


if __name__ == "__main__":
    sys.exit(main())
