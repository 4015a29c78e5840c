"""Fresh processes on cores of their own, for benchmarks that count compilation: each task runs this
interpreter on a script, and its last line of output is a JSON object. Results are kept one by one.
"""

import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Task", "peak_megabytes", "run_tasks"]

_ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}


class Task(NamedTuple):
    """A name to keep the result under, and what the script is called with."""

    name: str
    arguments: tuple[str, ...]


def run_tasks(
    script: str, tasks: Sequence[Task], folder: Path, *, jobs: int, cores: int, timeout: float
) -> dict[str, dict[str, Any]]:
    """Every task's result by its name: read back, or computed in a process that has `cores` cores
    to itself, `jobs` at a time. A process that fails or takes too long is a result with "failed".
    """
    folder.mkdir(parents=True, exist_ok=True)
    free: queue.Queue[list[int]] = queue.Queue()
    available = sorted(os.sched_getaffinity(0))
    jobs = max(1, min(jobs, len(available) // cores))
    for job in range(jobs):
        free.put(available[job * cores : (job + 1) * cores])

    def run(task: Task) -> tuple[str, dict[str, Any]]:
        record = folder / f"{task.name}.json"
        if record.exists():
            return task.name, json.loads(record.read_text(encoding="utf-8"))
        mine = free.get()
        try:
            result = _run_one(script, task, mine, timeout)
        finally:
            free.put(mine)
        if "failed" not in result:
            record.write_text(json.dumps(result, indent=2), encoding="utf-8")
        print(f"{task.name}: {json.dumps(result)[:300]}", file=sys.stderr, flush=True)
        return task.name, result

    with ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(run, tasks))


def _run_one(script: str, task: Task, cores: list[int], timeout: float) -> dict[str, Any]:
    environment = dict(os.environ)
    if len(cores) == 1:
        environment.update(_ONE_THREAD)
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, script, *task.arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than {timeout:.0f} s"}
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    result = json.loads(done.stdout.strip().splitlines()[-1])
    return {**result, "process_wall_seconds": time.perf_counter() - began}


def peak_megabytes() -> float:
    """The most memory that this process has held."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
