"""Work in processes of their own, one core each and none longer than a limit: what is still running
then is stopped, and what it reported so far is kept.

What the work computes is not known here.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

__all__ = ["Job", "Outcome", "run_limited"]


class Job(NamedTuple):
    """A name and the arguments of its work."""

    name: str
    args: tuple[Any, ...]


class Outcome(NamedTuple):
    """How a job ended. `state` is "done", "failed" (an error, in words), "stopped" (by a limit) or
    "died" (the process was lost); `told` is what it last reported before that.
    """

    name: str
    state: str
    value: Any
    told: Any
    seconds: float


class _Running(NamedTuple):
    job: Job
    process: Any
    core: int | None
    # Until the process says that it began, its limit is no limit.
    began: float = float("inf")


def run_limited(
    work: Callable[..., Any],
    jobs: Sequence[Job],
    *,
    at_once: int,
    limit: float,
    within: float = float("inf"),
    on_start: Callable[[str], None] = lambda name: None,
    on_end: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """`work(*args, tell)` of every job in the order given, `at_once` at a time.

    **Arguments:**

    - `work`: a function of a module; its arguments, its result and what it passes to `tell` must be
      picklable.
    - `limit`: seconds of a job, from when its process has started; `within`: seconds of all
      together. Jobs that were never started are not among the outcomes.
    - `on_start`, `on_end`: called in this process.
    """
    cores, waiting = _cores(at_once), list(jobs)
    last = time.monotonic() + within
    running: dict[Connection, _Running] = {}
    told: dict[str, Any] = {}
    outcomes: list[Outcome] = []

    def end(connection: Connection, state: str, value: Any) -> None:
        job, process, core, began = running.pop(connection)
        connection.close()
        if process.is_alive() and state != "done":
            process.kill()
        process.join()
        cores.append(core)
        seconds = max(time.monotonic() - began, 0.0)
        outcomes.append(Outcome(job.name, state, value, told.get(job.name), seconds))
        on_end(outcomes[-1])

    try:
        while running or (waiting and time.monotonic() < last):
            while waiting and cores and time.monotonic() < last:
                job = waiting.pop(0)
                on_start(job.name)
                connection, entry = _start(work, job, cores.pop(0))
                running[connection] = entry
            due = min(min(entry.began + limit for entry in running.values()), last)
            left = None if due == float("inf") else max(due - time.monotonic(), 0.0)
            ready = wait(list(running), left)
            for connection in [each for each in running if each in ready]:
                message = _receive(connection)
                if message[0] == "began":
                    running[connection] = running[connection]._replace(began=time.monotonic())
                elif message[0] == "told":
                    told[running[connection].job.name] = message[1]
                else:
                    end(connection, *message)
            now = time.monotonic()
            for connection, entry in list(running.items()):
                if now >= min(entry.began + limit, last):
                    end(connection, "stopped", None)
    finally:
        for entry in running.values():
            entry.process.kill()
            entry.process.join()
    return outcomes


def _cores(at_once: int) -> list[int | None]:
    """A core for each of the jobs at once, in turn where there are fewer cores than jobs."""
    if not hasattr(os, "sched_getaffinity"):
        return [None] * at_once
    cores = sorted(os.sched_getaffinity(0))
    return [cores[i % len(cores)] for i in range(at_once)]


def _start(work: Callable[..., Any], job: Job, core: int | None) -> tuple[Connection, _Running]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, core, work, job.args), daemon=True)
    process.start()
    theirs.close()
    return ours, _Running(job, process, core)


def _receive(connection: Connection) -> tuple[str, Any]:
    try:
        return connection.recv()
    except (EOFError, OSError):
        return "died", "its process ended without a word"


def _work(
    connection: Connection, core: int | None, work: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    """In the other process: threads that are made from here on share one core."""
    if core is not None:
        os.sched_setaffinity(0, {core})

    def tell(value: Any) -> None:
        connection.send(("told", value))

    connection.send(("began", None))
    try:
        result = work(*args, tell)
    except Exception as error:
        connection.send(("failed", f"{type(error).__name__}: {error}"))
    else:
        connection.send(("done", result))
    connection.close()
