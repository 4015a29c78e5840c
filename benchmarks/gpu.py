"""Answers of `nvi.sample` on an accelerator: the first of a fresh process and later ones.

Run as: python benchmarks/gpu.py, on a machine with a GPU. The rotated funnel (10 dimensions) and a
logistic regression (61): wall seconds of the first answer with all compilation, of three more with
other keys, and the error of each log Z. The library's defaults and JAX's: no flag is set. Writes
results/gpu/answers.json and answers.md; --profile prints where the second answer's time goes.
"""

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from fresh import Task, peak_megabytes, run_tasks

_OUT = Path(__file__).parent.parent / "results" / "gpu"
PROBLEMS = ("rotated-funnel", "logistic-61")
_ANSWERS = 4


def problem(name: str) -> tuple[Any, dict[str, Any], float]:
    """The target, arguments of `sample`, and log Z."""
    if name == "rotated-funnel":
        from nestedvi.targets.catalogue import get_target, rotated

        target = rotated(get_target("funnel"), 0)
        return target.build(), {"dim": target.dim}, target.known_log_Z
    from nestedvi.bench.campaign.simulated import logistic

    case = logistic()
    assert case.log_Z is not None
    return case.model, dict(case.options), case.log_Z


def child(name: str, profile: bool) -> None:
    """One process: several answers of a problem."""
    import jax

    import nestedvi as nvi

    target, arguments, truth = problem(name)
    runs = []
    for seed in range(_ANSWERS):
        profiler = cProfile.Profile()
        if profile and seed == 1:
            profiler.enable()
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = nvi.sample(jax.random.key(seed), target, **arguments)
        seconds = time.perf_counter() - began
        if profile and seed == 1:
            profiler.disable()
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumulative").print_stats(70)
        runs.append(
            {
                "seconds": seconds,
                "timings": posterior.timings,
                "error": posterior.log_Z - truth,
                "stderr": posterior.log_Z_stderr,
                "diagnosis": list(posterior.diagnosis),
            }
        )
    device = jax.devices()[0].device_kind
    print(json.dumps({"device": device, "runs": runs, "peak_megabytes": peak_megabytes()}))


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| problem | first answer | later ones | error of log Z | standard errors |"]
    lines.append("|---|---|---|---|---|")
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['problem']} | {row['failed']} | | | |")
            continue
        first, *later = row["runs"]
        cells = [
            row["problem"],
            f"{first['seconds']:.1f}",
            ", ".join(f"{run['seconds']:.1f}" for run in later),
            ", ".join(f"{run['error']:+.4f}" for run in row["runs"]),
            ", ".join(f"{run['stderr']:.4f}" for run in row["runs"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "Wall seconds; one fresh process a problem."]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(PROBLEMS), help="separated by commas")
    parser.add_argument("--cores", type=int, default=4, help="cores of the host for a process")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one process")
    parser.add_argument("--out", default=str(_OUT))
    parser.add_argument("--child", metavar="PROBLEM", help=argparse.SUPPRESS)
    parser.add_argument("--profile", action="store_true", help="with --child")
    options = parser.parse_args()
    if options.child:
        child(options.child, options.profile)
        return
    from nestedvi.storage.files import output_folder, provenance, write_json, write_text

    names = options.problems.split(",")
    tasks = [Task(name, ("--child", name)) for name in names]
    # Timings of another day say nothing of today's code: nothing is read back.
    with tempfile.TemporaryDirectory() as cells:
        results = run_tasks(
            __file__,
            tasks,
            Path(cells),
            jobs=1,
            cores=options.cores,
            timeout=options.timeout,
        )
    rows = [{"problem": name, **results[name]} for name in names]
    folder = output_folder(options.out)
    write_json(folder / "answers.json", {"rows": rows, **provenance(0)})
    write_text(folder / "answers.md", table(rows))
    print(table(rows))


if __name__ == "__main__":
    sys.exit(main())
