"""A campaign of faults: processes are killed, interrupted, run two at a time, their files damaged
and their disks filled, at random times. Each must end with the bits of an undisturbed process, or
say in one sentence why it did not.

Run as: python benchmarks/faults.py --jobs 14 --out results/faults (some minutes on 16 cores);
--quick is a small part of it. It needs a system with fork, and the right to mount for the tests of
disks: without that a limit on the size of files stands for a full disk.

Processes are forked from one that has imported the library and has run nothing. Programs are
compiled once and kept in a cache that all share; the reference is a process that found it empty.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fault_work import DATA, WORK, run_child
from nestedvi.storage.files import output_folder, provenance, write_json, write_text

LIMIT, _GUESS = 240.0, 8.0
SAMPLES = ("sample smc", "sample auto", "sample smc", "sample trained", "sample frozen")
NOISE = ("Traceback", "Event loop is closed", "Segmentation fault", "never retrieved")
COMMAND = (sys.executable, "-c", "from nestedvi_command import run; run()")
MODEL = """
import numpyro
import numpyro.distributions as dist

def model(x):
    loc = numpyro.sample("loc", dist.Normal(0, 1))
    numpyro.sample("x", dist.Normal(loc, 1.0), obs=x)
"""
COMMANDS = {
    "sample": "sample {lab}/model.py:model --data {lab}/data.npz --method smc --particles 200",
    "demo": "demo --steps 2000",
    "reproduce": "reproduce annealing --quick --methods avo --levels 2 --iterations 200",
}


class Ended(NamedTuple):
    """How a process ended: its code, the digest of its result, and what it said."""

    code: int | None
    digest: str | None
    said: str


class Lab(NamedTuple):
    """Where everything happens, and what undisturbed processes gave: digest and seconds by name."""

    folder: Path
    references: dict[str, tuple[str, float]]

    def begin(self, name: str, folder: Path, most_bytes: int | None = None) -> int:
        """Starts a process for that work; its id."""
        result, said = folder.with_suffix(".result"), folder.with_suffix(".said")
        result.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            run_child(name, folder, result, said, self.folder / "cache", most_bytes)
        return pid

    def end(self, pid: int, folder: Path, limit: float = LIMIT) -> Ended:
        """Waits for the process."""
        code = _wait(pid, limit)
        if code is None:
            _kill(pid)
        result, said = folder.with_suffix(".result"), folder.with_suffix(".said")
        digest = result.read_text() if result.exists() else None
        return Ended(code, digest, said.read_text(errors="replace") if said.exists() else "")

    def judge(self, name: str, ended: Ended, may_say: str | None = None) -> str:
        """ "same bits", "said" where `may_say` is in its one sentence, or what is wrong."""
        noise = [word for word in NOISE if word in ended.said]
        if noise:
            return f"noise: {noise[0]}: {ended.said[-600:]}"
        if ended.code == 0:
            same = ended.digest == self.references[name][0]
            return "same bits" if same else f"other bits; it said {ended.said[-300:]!r}"
        lines = ended.said.strip().splitlines()
        if ended.code == 1 and may_say is not None and lines and may_say in lines[-1]:
            return "said"
        return f"code {ended.code}: {ended.said[-600:]}"


def _wait(pid: int, seconds: float) -> int | None:
    """The exit code (negative: a signal), or None if it is still running after that time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _has_files(folder: Path) -> bool:
    try:
        return any(p.is_file() and p.name != ".lock" for p in folder.rglob("*"))
    except OSError:
        # A folder that went while it was looked at: something is being written.
        return True


def kill(lab: Lab, number: int, name: str) -> dict[str, Any]:
    """Killed twice at random times, then left alone. Every other process is killed soon after its
    first file, where most is being written.
    """
    rng, folder = random.Random(number), lab.folder / f"kill-{name.replace(' ', '-')}-{number}"
    kills = 0
    for _ in range(2):
        pid, seconds = lab.begin(name, folder), lab.references[name][1]
        code = None
        if number % 2:
            while code is None and not _has_files(folder):
                code = _wait(pid, 0.01)
            seconds /= 10
        if code is None and _wait(pid, rng.uniform(0.05, 0.95) * seconds) is None:
            _kill(pid)
            kills += 1
    outcome = lab.judge(name, lab.end(lab.begin(name, folder), folder))
    shutil.rmtree(folder, ignore_errors=True)
    return {"kills": kills, "outcome": outcome}


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path, random.Random], Any]] = {
    "a bit": _flip,
    "cut": lambda path, rng: os.truncate(path, rng.randrange(max(1, path.stat().st_size))),
    "emptied": lambda path, rng: path.write_bytes(b""),
    "missing": lambda path, rng: path.unlink(),
    "longer": lambda path, rng: path.write_bytes(path.read_bytes() + b"\0" * 7),
}


def damage(lab: Lab, number: int, name: str) -> dict[str, Any]:
    """A file of a process that was killed, or had ended, is damaged."""
    rng, folder = random.Random(number), lab.folder / f"damage-{name.replace(' ', '-')}-{number}"
    pid = lab.begin(name, folder)
    # As long as it takes for something to be there, and then some.
    while _wait(pid, rng.uniform(0.1, 1.0) * lab.references[name][1]) is None:
        if _has_files(folder):
            _kill(pid)
            break
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
    if not files:
        shutil.rmtree(folder, ignore_errors=True)
        return {"outcome": "nothing to damage yet"}
    kind, file = rng.choice(sorted(DAMAGES)), rng.choice(files)
    DAMAGES[kind](file, rng)
    ended = lab.end(lab.begin(name, folder), folder)
    outcome = lab.judge(name, ended, "No checkpoint in")
    shutil.rmtree(folder, ignore_errors=True)
    return {"what": f"{file.relative_to(folder)}: {kind}", "outcome": outcome}


@contextlib.contextmanager
def _disk(folder: Path, size: int) -> Iterator[bool]:
    """A small disk at `folder`; False where this user may not mount one."""
    folder.mkdir(parents=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    try:
        yield made.returncode == 0
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def disk(lab: Lab, number: int, name: str, kind: str) -> dict[str, Any]:
    """A disk that is full from the start, fills up, or is read-only."""
    place = lab.folder / f"disk-{name.replace(' ', '-')}-{number}"
    size = {"full": 16_384, "fills up": 400_000, "read-only": 1 << 20}[kind]
    with _disk(place, size) as mounted:
        most_bytes = None
        if mounted and kind == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        elif not mounted and kind == "read-only":
            (place / "work").write_text("in the way")
        elif not mounted:
            # Small enough for no checkpoint, large enough for the result's digest.
            most_bytes = {"full": 1024, "fills up": 70_000}[kind]
        folder = place / "work"
        beside = lab.folder / f"disk-{number}-{name.replace(' ', '-')}"
        beside.mkdir()
        # What the process says must not lie on the disk that is full.
        pid = os.fork()
        if pid == 0:
            said, result = beside / "said", beside / "result"
            run_child(name, folder, result, said, lab.folder / "cache", most_bytes)
        code = _wait(pid, LIMIT)
        if code is None:
            _kill(pid)
        result = beside / "result"
        digest = result.read_text() if result.exists() else None
        ended = Ended(code, digest, (beside / "said").read_text(errors="replace"))
    last = (ended.said.strip().splitlines() or [""])[-1]
    reasons = ("Cannot write", "No space left", "Read-only", "File too large", "Not a directory")
    may_say = next((reason for reason in reasons if reason in last), None)
    outcome = lab.judge(name, ended, may_say)
    return {"what": f"{kind}, {'mounted' if mounted else 'limited'}", "outcome": outcome}


def together(lab: Lab, number: int, name: str) -> dict[str, Any]:
    """Two processes in one folder: one ends, the other too or names it."""
    rng, folder = random.Random(number), lab.folder / f"two-{name.replace(' ', '-')}-{number}"
    first = lab.begin(name, folder)
    time.sleep(rng.uniform(0, 0.5) * lab.references[name][1])
    other = folder.with_name(folder.name + "-other")
    pid = os.fork()
    if pid == 0:
        result, said = other.with_suffix(".result"), other.with_suffix(".said")
        run_child(name, folder, result, said, lab.folder / "cache")
    ends = [lab.end(first, folder), lab.end(pid, other)]
    ids = (first, pid)
    outcomes = [
        lab.judge(name, ended, f"in use by process {holder}")
        for ended, holder in zip(ends, reversed(ids), strict=True)
    ]
    bad = [outcome for outcome in outcomes if outcome not in ("same bits", "said")]
    if bad or "same bits" not in outcomes:
        return {"what": outcomes, "outcome": (bad or ["neither ended"])[0]}
    again = lab.judge(name, lab.end(lab.begin(name, folder), folder))
    shutil.rmtree(folder, ignore_errors=True)
    return {"what": outcomes, "outcome": again}


def _command(lab: Lab, name: str, out: Path, cached: bool) -> subprocess.Popen:
    arguments = COMMANDS[name].format(lab=lab.folder).split()
    # Compiled programs are kept for some, so that Ctrl-C also comes late.
    place = lab.folder / "cache" if cached else out.with_suffix(".cache")
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(place)}
    environment |= {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return subprocess.Popen(
        [*COMMAND, *arguments, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _outcome_of_command(name: str, out: Path) -> str:
    """What a command wrote, without times."""
    file = {"sample": "posterior.json", "demo": "demo.json", "reproduce": "results.json"}[name]
    content = json.loads((out / file).read_text(encoding="utf-8"))
    if name == "reproduce":
        content = [{k: x for k, x in r.items() if "seconds" not in k} for r in content["rows"]]
    else:
        kept = ("log_Z", "log_Z_stderr", "ess", "sites", "mode_shares", "schedule")
        content = {k: content[k] for k in kept if k in content}
    return json.dumps(content, sort_keys=True)


def interrupt(lab: Lab, number: int, name: str) -> dict[str, Any]:
    """Ctrl-C at a random time from the start of a command on; some are then run to their end."""
    rng, out = random.Random(number), lab.folder / f"interrupt-{name}-{number}"
    reference, seconds = lab.references[f"command {name}"]
    process = _command(lab, name, out, cached=number % 2 == 0)
    delay = rng.uniform(0, seconds) * rng.choice((0.1, 1.0, 1.0))
    time.sleep(delay)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        _, stderr = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        return {"outcome": f"did not end after Ctrl-C at {delay:.2f} s"}
    took = time.monotonic() - began
    code, what = process.returncode, f"{name} after {delay:.2f} s, ended in {took:.2f} s"
    # Before Python runs a line of ours, the system ends the process as it does any other, or Python
    # does while it reads the files of its own start.
    none_of_ours = "KeyboardInterrupt" in stderr and "nestedvi" not in stderr
    early = delay < 0.3 and (code == -signal.SIGINT or none_of_ours)
    noisy = any(word in stderr for word in NOISE) or stderr.count("Interrupted:") > 1
    if noisy and not early:
        return {"what": what, "seconds": took, "outcome": f"noise, code {code}: {stderr[-600:]}"}
    if not (early or (code == 130 and "Interrupted: " in stderr) or code == 0):
        return {"what": what, "seconds": took, "outcome": f"code {code}: {stderr[-600:]}"}
    outcome = {0: "ended before", 130: "said"}.get(code, "before Python began")
    if number % 3 == 0 and code != 0:
        _, stderr = (process := _command(lab, name, out, cached=True)).communicate()
        same = process.returncode == 0 and _outcome_of_command(name, out) == reference
        outcome = "same bits" if same else f"code {process.returncode}: {stderr[-600:]}"
    shutil.rmtree(out, ignore_errors=True)
    return {"what": what, "seconds": took, "outcome": outcome}


def _trial(task: tuple[str, Callable[..., dict[str, Any]], Lab, tuple[Any, ...]]) -> dict[str, Any]:
    part, function, lab, arguments = task
    try:
        done = function(lab, *arguments)
    except Exception as error:
        done = {"outcome": f"the trial failed: {type(error).__name__}: {error}"}
    return {"part": part, "number": arguments[0], "work": arguments[1], **done}


def _references(
    folder: Path, names: tuple[str, ...], commands: tuple[str, ...], quick: bool
) -> Lab:
    """Undisturbed processes: with an empty cache, whose result counts, and with a full one, which
    must give the same and tells how long it takes.
    """
    lab = Lab(folder, {})
    (folder / "cache").mkdir()
    (folder / "model.py").write_text(MODEL)
    np.savez(folder / "data.npz", x=DATA)
    pids: dict[str, int] = {}
    for repeat in ("cold",) if quick else ("cold", "warm"):
        places = {name: folder / f"{repeat}-{name.replace(' ', '-')}" for name in names}
        began = time.monotonic()
        pids = {name: lab.begin(name, place) for name, place in places.items()}
        for name, pid in pids.items():
            # All of them compile at the same time.
            ended = lab.end(pid, places[name], 4 * LIMIT)
            seconds = time.monotonic() - began
            if ended.code != 0 or ended.digest is None:
                raise SystemExit(f"{name} fails without any fault: {ended.said[-2000:]}")
            if lab.references.get(name, (ended.digest,))[0] != ended.digest:
                raise SystemExit(f"{name}: a compiled program from the cache gives other bits.")
            lab.references[name] = ended.digest, seconds / 3 if quick else seconds
    for name in commands:
        # Nothing is compared in the quick part: a guess at the time is enough.
        lab.references[f"command {name}"] = "", _GUESS
        for _ in range(0 if quick else 2):
            began = time.monotonic()
            process = _command(lab, name, folder / f"command-{name}", cached=True)
            _, stderr = process.communicate()
            if process.returncode != 0:
                raise SystemExit(f"nestedvi {name} fails without any fault: {stderr[-2000:]}")
            outcome = _outcome_of_command(name, folder / f"command-{name}")
            shutil.rmtree(folder / f"command-{name}")
            lab.references[f"command {name}"] = outcome, time.monotonic() - began
    return lab


def _plan(quick: bool) -> dict[str, list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]]]:
    """Every part of the campaign: functions with their arguments."""
    if quick:
        return {
            "kills of fit": [(kill, (1, "fit"))],
            "damaged files": [(damage, (0, "fit"))],
            "disks": [(disk, (0, "fit", "fills up"))],
            "two processes": [(together, (0, "fit"))],
            "Ctrl-C": [(interrupt, (1, "sample"))],
        }
    kinds = ("full", "fills up", "read-only")
    works = ("fit", "sample smc", "fit", "reproduce", "sample trained")
    names = ("sample", "sample", "sample", "demo", "reproduce")
    return {
        "kills of fit": [(kill, (i, "fit")) for i in range(110)],
        "kills of sample": [(kill, (i, SAMPLES[i % 5])) for i in range(120)],
        "kills of reproduce": [(kill, (i, "reproduce")) for i in range(30)],
        "damaged files": [(damage, (i, works[i % 5])) for i in range(70)],
        "disks": [
            (disk, (i, name, kind))
            for i, (name, kind) in enumerate(
                (name, kind) for kind in kinds for name in ("fit", "sample smc", "reproduce")
            )
        ],
        "two processes": [(together, (i, works[i % 4])) for i in range(16)],
        "Ctrl-C": [(interrupt, (i, names[i % 5])) for i in range(60)],
    }


def _summary(trials: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    good = ("same bits", "said", "ended before", "before Python began", "nothing to damage yet")
    parts: dict[str, dict[str, Any]] = {}
    for part in dict.fromkeys(trial["part"] for trial in trials):
        mine = [trial for trial in trials if trial["part"] == part]
        outcomes = Counter(t["outcome"] if t["outcome"] in good else "failed" for t in mine)
        parts[part] = {
            "trials": len(mine),
            "kills": sum(trial.get("kills", 0) for trial in mine),
            "outcomes": dict(outcomes),
            "failures": [trial for trial in mine if trial["outcome"] not in good],
        }
        waits = [trial["seconds"] for trial in mine if "seconds" in trial]
        if waits:
            parts[part] |= {"seconds_median": float(np.median(waits)), "seconds_max": max(waits)}
    return parts


def _table(parts: dict[str, dict[str, Any]]) -> str:
    lines = ["| part | trials | kills | outcomes | failed |", "|---|---|---|---|---|"]
    for name, part in parts.items():
        outcomes = ", ".join(f"{k} {n}" for k, n in part["outcomes"].items() if k != "failed")
        lines.append(
            f"| {name} | {part['trials']} | {part['kills'] or ''} | {outcomes} |"
            f" {len(part['failures'])} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the campaign; the exit code is 1 if anything was lost."""
    parser = argparse.ArgumentParser(description="A campaign of faults.")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="results/faults")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="only every so many trials")
    parser.add_argument("--only", default=None, help="parts, separated by commas")
    options = parser.parse_args()
    out, began = output_folder(options.out), time.monotonic()
    plan = _plan(options.quick)
    if options.only is not None:
        plan = {part: plan[part] for part in options.only.split(",")}
    plan = {part: trials[:: options.every] for part, trials in plan.items()}
    chosen = [(function, arguments) for part in plan.values() for function, arguments in part]
    names = tuple(dict.fromkeys(a[1] for f, a in chosen if f is not interrupt))
    commands = tuple(dict.fromkeys(a[1] for f, a in chosen if f is interrupt))
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        lab = _references(folder, names, commands, options.quick)
        tasks = [(p, f, lab, a) for p, trials in plan.items() for f, a in trials]
        # Long and short trials mixed, so that no part waits for another.
        random.Random(0).shuffle(tasks)
        with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
            trials = list(pool.map(_trial, tasks))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    trials.sort(key=lambda trial: list(plan).index(trial["part"]))
    parts = _summary(trials)
    content = {"parts": parts, "seconds": time.monotonic() - began, "jobs": options.jobs}
    # The device is asked for last: it must not be set up in a process that forks.
    write_json(out / "faults.json", {**content, "trials": trials, **provenance(0)})
    write_text(out / "faults.md", _table(parts))
    print(_table(parts))
    for part in parts.values():
        for failure in part["failures"]:
            print(failure)
    return 1 if any(part["failures"] for part in parts.values()) else 0


if __name__ == "__main__":
    assert set(SAMPLES) <= set(WORK)
    sys.exit(main())
