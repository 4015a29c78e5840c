"""Work in processes of their own, one core each and none longer than a limit: what is still running
then is stopped, and what it reported so far is kept.

It refuses to know what the work computes.
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
    "died" (the process was lost); `reported` is what it last reported before that.
    """

    name: str
    state: str
    value: Any
    reported: Any
    seconds: float


class _Running(NamedTuple):
    job: Job
    process: Any
    core: int | None
    # Until the process says that it began, its limit is no limit.
    began: float = float("inf")
    reported: Any = None


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
    """`work(*args, report)` of every job in the order given, `at_once` at a time.

    Args:
        work: a function of a module; its arguments, its result and what it passes to `report` must
            be picklable.
        jobs: names and arguments.
        at_once: processes side by side.
        limit: seconds of a job, from when its process has started.
        within: seconds of all together. Jobs that were never started are not among the outcomes.
        on_start: called in this process with the name of a job that starts.
        on_end: called in this process with the outcome of a job that ended.
    """
    pool, waiting = _Pool(work, _cores(at_once), limit, time.monotonic() + within, on_end), [*jobs]
    try:
        while pool.running or (waiting and pool.in_time()):
            while waiting and pool.cores and pool.in_time():
                job = waiting.pop(0)
                on_start(job.name)
                pool.start(job)
            pool.listen()
            pool.stop_overdue()
    finally:
        pool.kill()
    return pool.outcomes


class _Pool:
    """The processes that run, the cores that are free, and the outcomes so far."""

    def __init__(
        self,
        work: Callable[..., Any],
        cores: list[int | None],
        limit: float,
        last: float,
        on_end: Callable[[Outcome], None],
    ):
        self._work, self._limit, self._last, self._on_end = work, limit, last, on_end
        self.cores = cores
        self.running: dict[Connection, _Running] = {}
        self.outcomes: list[Outcome] = []

    def in_time(self) -> bool:
        return time.monotonic() < self._last

    def start(self, job: Job) -> None:
        connection, entry = _start(self._work, job, self.cores.pop(0))
        self.running[connection] = entry

    def listen(self) -> None:
        """Waits for messages until the next limit, and reads those that came."""
        due = min(self._due(entry) for entry in self.running.values())
        left = None if due == float("inf") else max(due - time.monotonic(), 0.0)
        ready = wait(list(self.running), left)
        for connection in [each for each in self.running if each in ready]:
            kind, value = _receive(connection)
            entry = self.running[connection]
            if kind == "began":
                self.running[connection] = entry._replace(began=time.monotonic())
            elif kind == "reported":
                self.running[connection] = entry._replace(reported=value)
            else:
                self._end(connection, kind, value)

    def stop_overdue(self) -> None:
        now = time.monotonic()
        for connection, entry in list(self.running.items()):
            if now >= self._due(entry):
                self._end(connection, "stopped", None)

    def kill(self) -> None:
        for entry in self.running.values():
            entry.process.kill()
            entry.process.join()

    def _due(self, entry: _Running) -> float:
        return min(entry.began + self._limit, self._last)

    def _end(self, connection: Connection, state: str, value: Any) -> None:
        entry = self.running.pop(connection)
        connection.close()
        if entry.process.is_alive() and state != "done":
            entry.process.kill()
        entry.process.join()
        self.cores.append(entry.core)
        seconds = max(time.monotonic() - entry.began, 0.0)
        outcome = Outcome(entry.job.name, state, value, entry.reported, seconds)
        self.outcomes.append(outcome)
        self._on_end(outcome)


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

    def report(value: Any) -> None:
        connection.send(("reported", value))

    connection.send(("began", None))
    try:
        result = work(*args, report)
    except Exception as error:
        connection.send(("failed", f"{type(error).__name__}: {error}"))
    else:
        connection.send(("done", result))
    connection.close()
