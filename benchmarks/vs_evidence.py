"""log Z side by side with dynesty, nautilus, pocoMC, UltraNest, jaxns, PyMC's SMC and NumPyro's
NUTS (posterior only), on eight problems where it is known.

    pip install dynesty nautilus-sampler pocomc ultranest jaxns pymc scikit-learn
    python benchmarks/vs_evidence.py --out results/bench --limit 120 --jobs 1

Each has the settings that its documentation recommends, one core, and the same limit of CPU seconds
an answer. Every answer is kept when it is done: the same command goes on. A library that is not
installed is passed over. For the first seed a second answer of the same process is timed as well;
what ran out of its limit there is not tried with other seeds.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import itertools
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from evidence_peers import CONTENDERS, answer
from evidence_problems import PROBLEMS
from nestedvi.grid.cells import fingerprint
from nestedvi.grid.limited import Job, Outcome, run_limited
from nestedvi.storage.files import output_folder, provenance, write_json, write_text

_MODULES = {
    "auto": "nestedvi",
    "pymc-smc": "pymc",
    "numpyro-nuts": "numpyro",
    **{name: name for name in ("dynesty", "nautilus", "pocomc", "ultranest", "jaxns")},
}
_PACKAGES = {"nautilus": "nautilus-sampler"}
Row = dict[str, Any]


def one_answer(contender: str, problem: str, seed: int, limit: float) -> Row:
    """An answer and its CPU seconds; beyond the limit the system ends the process."""
    used = time.process_time()
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + limit) + 1, most))
    known = PROBLEMS[problem]()
    began = time.process_time()
    result = answer(contender, known, seed)
    return {
        **result._asdict(),
        "error": None if result.log_Z is None else result.log_Z - known.log_Z,
        "cpu_seconds": time.process_time() - began,
    }


def cell(contender: str, problem: str, seed: int, limit: float, report: Any) -> Row:
    """The first answer of a process, and for the first seed a second one with another seed."""
    first = one_answer(contender, problem, seed, limit)
    report(first)
    second = one_answer(contender, problem, seed + 1000, limit) if seed == 0 else None
    return {"first": first, "second": second}


def row_of(job: tuple[str, str, int], limit: float, outcome: Outcome) -> Row:
    """What is kept of a process, however it ended."""
    contender, problem, seed = job
    row = {"contender": contender, "problem": problem, "seed": seed, "limit": limit}
    if outcome.state == "done":
        return {**row, "state": "answered", **outcome.value}
    row |= {"first": outcome.reported, "second": None}
    if outcome.reported:
        return {**row, "state": "answered"}
    if outcome.state == "failed":
        return {**row, "state": "failed", "why": str(outcome.value)}
    return {**row, "state": "over the limit", "why": f"no answer in {limit:.0f} CPU seconds"}


def summarise(rows: list[Row]) -> list[Row]:
    """One line a problem and contender: errors over all answers, medians of cost."""
    lines = []
    for problem, contender in itertools.product(PROBLEMS, CONTENDERS):
        some = [r for r in rows if (r["problem"], r["contender"]) == (problem, contender)]
        if not some:
            continue
        runs = [run for r in some for run in (r["first"], r["second"]) if run]
        errors = [run["error"] for run in runs if run["error"] is not None]
        seconds = [r["second"]["cpu_seconds"] for r in some if r["second"]]
        lines.append(
            {
                "problem": problem,
                "contender": contender,
                "log_Z": PROBLEMS[problem]().log_Z,
                "answers": len(runs),
                "asked": len(some),
                "states": sorted({r["state"] for r in some}),
                "mean_abs_error": float(np.mean(np.abs(errors))) if errors else None,
                "worst_error": max(errors, key=abs) if errors else None,
                "stated": _median(run["stderr"] for run in runs),
                "evaluations": _median(run["evaluations"] for run in runs),
                "cpu_first": _median(r["first"]["cpu_seconds"] for r in some if r["first"]),
                "cpu_second": _median(seconds),
                "warned": sum(bool(run["warned"]) for run in runs),
            }
        )
    return lines


def _median(values: Any) -> float | None:
    known = [x for x in values if x is not None and np.isfinite(x)]
    return float(np.median(known)) if known else None


def table(lines: list[Row]) -> str:
    """Markdown of at most 80 columns."""

    def number(x: float | None, form: str) -> str:
        return "–" if x is None else format(x, form)

    head = ("problem", "library", "error", "worst", "stated", "evals", "CPU s", "2nd", "w")
    cells = [head]
    for line in lines:
        missing = line["asked"] and not line["answers"]
        cells.append(
            (
                line["problem"],
                line["contender"],
                " ".join(line["states"]) if missing else number(line["mean_abs_error"], ".3f"),
                number(line["worst_error"], "+.3f"),
                number(line["stated"], ".3f"),
                number(line["evaluations"], ".1e"),
                number(line["cpu_first"], ".0f"),
                number(line["cpu_second"], ".0f"),
                f"{line['warned']}/{line['answers']}",
            )
        )
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    text = ["|".join(["", *map(str.ljust, row, widths), ""]) for row in cells]
    text.insert(1, "|".join(["", *("-" * width for width in widths), ""]))
    notes = [
        "",
        "error: mean absolute error of log Z; stated: the median of the library's own",
        "standard error; evals: evaluations of the likelihood, gradients among them;",
        "CPU s, 2nd: CPU seconds of an answer in a new process, and of another in the",
        "same one; w: answers that warned.",
    ]
    return "\n".join([*text, *notes]) + "\n"


def versions(contenders: list[str]) -> dict[str, str]:
    """Versions of the libraries that are installed as packages."""
    found = {}
    for contender in contenders:
        module = _MODULES[contender]
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[module] = importlib.metadata.version(_PACKAGES.get(module, module))
    return found


def _fingerprint(at: tuple[str, str, int], limit: float) -> str:
    contender, problem, seed = at
    return fingerprint({"problem": problem, "contender": contender, "seed": seed, "limit": limit})


def _cell_file(folder: Path, at: tuple[str, str, int]) -> Path:
    contender, problem, seed = at
    return folder / f"evidence-{problem}-{contender}-{seed}.json"


def _read_cell(folder: Path, at: tuple[str, str, int], limit: float) -> Row | None:
    """What a run before has kept, if it was asked for the same."""
    path = _cell_file(folder, at)
    if not path.exists():
        return None
    row: Row = json.loads(path.read_text(encoding="utf-8"))
    return row if row.get("fingerprint") == _fingerprint(at, limit) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="results/bench")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120.0, help="CPU seconds of an answer")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds of all")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, a core each")
    args = parser.parse_args()
    folder = output_folder(args.out)
    kept = output_folder(folder / "cells")
    contenders = [c for c in args.contenders if importlib.util.find_spec(_MODULES[c])]
    rows: dict[tuple[str, str, int], Row] = {}

    def write() -> None:
        lines = summarise(list(rows.values()))
        content = {"lines": lines, "rows": list(rows.values()), "libraries": versions(contenders)}
        write_json(folder / "vs_evidence.json", {**content, **provenance(0)})
        write_text(folder / "vs_evidence.md", table(lines))

    def keep(at: tuple[str, str, int], row: Row) -> None:
        rows[at] = row
        content = {**row, "fingerprint": _fingerprint(at, args.limit)}
        write_json(_cell_file(kept, at), content)
        write()
        print(*at, row["state"], row.get("why", ""), flush=True)

    # Seeds outermost: what is stopped early has every problem at least once.
    for seed in range(args.seeds):
        jobs = []
        for problem, contender in itertools.product(args.problems, contenders):
            at = contender, problem, seed
            first = rows.get((contender, problem, 0))
            if (row := _read_cell(kept, at, args.limit)) is not None:
                rows[at] = row
            elif first is not None and first["state"] == "over the limit":
                # What takes longer than the limit with one seed does so with another.
                why = "not tried: no answer within the limit with the first seed"
                keep(at, {**first, "seed": seed, "why": why})
            else:
                jobs.append(Job(_cell_file(kept, at).stem, (*at, args.limit)))
        at_of = {job.name: job.args[:3] for job in jobs}
        # The system counts CPU seconds; the limit of wall time is for what waits for ever.
        run_limited(
            cell,
            jobs,
            at_once=args.jobs,
            limit=20 * args.limit,
            within=args.within,
            on_end=lambda outcome, at_of=at_of: keep(
                at_of[outcome.name], row_of(at_of[outcome.name], args.limit, outcome)
            ),
        )
    write()
    print((folder / "vs_evidence.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
