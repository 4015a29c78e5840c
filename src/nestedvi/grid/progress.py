"""Many trainings in one display: a bar for the whole grid, and one for each cell under way. The
cells run one after the other, in threads or in processes.

What a cell computes, and whether it was computed before, is not known here.
"""

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from nestedvi.interrupts import interruptible
from nestedvi.progress import status_text

__all__ = ["GridProgress", "Task"]

# Seconds between two looks at whether Ctrl-C was pressed.
_POLL = 0.2


class Task(NamedTuple):
    """A cell of a grid: what the display calls it, its expected share of the time, and what its
    work needs.
    """

    description: str
    cost: float
    args: tuple[Any, ...]


class GridProgress:
    """Progress over many trainings: one bar for the whole grid with time left, one for the training
    under way.

    `cost` of a cell is its expected share of the time, in any unit.
    """

    def __init__(self, total_cost: float, console: Console | None = None):
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._grid = self._progress.add_task("whole grid", total=total_cost, status="")
        self._stopping = False

    def __enter__(self) -> "GridProgress":
        self._progress.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._progress.stop()

    def each(self, work: Callable[[Any], None], items: Sequence[Any], jobs: int) -> None:
        """Does the work for every item, `jobs` at a time in threads; Ctrl-C lets the trainings
        under way save, then stops. Items take turns with the devices of this machine.
        """
        if jobs <= 1:
            for item in items:
                work(item)
            return
        devices = jax.local_devices()

        def work_on(item: Any, device: Any) -> None:
            with jax.default_device(device if len(devices) > 1 else None):
                work(item)

        with ThreadPoolExecutor(jobs) as pool:
            pairs = zip(items, itertools.cycle(devices))
            self._finish(pool, [pool.submit(work_on, *pair) for pair in pairs])

    def each_apart(self, work: Callable[..., Any], tasks: Sequence[Task], jobs: int) -> list[Any]:
        """`work(*args, reporter)` of every task, `jobs` at a time in processes of their own; Ctrl-C
        as for `each`.

        For small programs on a GPU: one process runs one program at a time there, several processes
        run several. Where there are several GPUs, processes are spread over them, and each sees its
        own. `work` must be a function of a module, and its arguments and result must be picklable.
        """
        reporters = [self.cell(task.description, task.cost) for task in tasks]
        if jobs <= 1:
            return [
                work(*task.args, reporter) for task, reporter in zip(tasks, reporters, strict=True)
            ]
        # A process that takes most of the GPU's memory when it starts would leave none for the
        # others.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        context = multiprocessing.get_context("spawn")
        with (
            context.Manager() as manager,
            ProcessPoolExecutor(
                jobs, context, _start_worker, (_one_gpu_each(manager.Queue(), jobs),)
            ) as pool,
        ):
            messages, stop = manager.Queue(), manager.Event()
            listener = threading.Thread(target=_listen, args=(messages, reporters), daemon=True)
            listener.start()
            relays = [_Relay(messages, stop, index) for index in range(len(tasks))]
            futures = [
                pool.submit(work, *task.args, relay)
                for task, relay in zip(tasks, relays, strict=True)
            ]
            try:
                self._finish(pool, futures, stop.set)
            finally:
                messages.put(None)
                listener.join()
        return [future.result() for future in futures]

    def _finish(
        self, pool: Executor, futures: list[Future], on_failure: Callable[[], None] | None = None
    ) -> None:
        """Waits for all of them; after a failure the others stop at their next report."""
        with interruptible() as asked:
            # The trainings under way have work to save.
            asked.unsaved = True
            try:
                waiting = set(futures)
                while waiting:
                    done, waiting = wait(waiting, _POLL, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    if asked.is_set():
                        raise KeyboardInterrupt("stopped; the same command goes on from there")
            except BaseException:
                self._stopping = True
                if on_failure is not None:
                    on_failure()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def skip(self, cost: float) -> None:
        """That much of the work is done, or was there already."""
        self._progress.advance(self._grid, cost)

    def cell(self, description: str, cost: float) -> "_CellReporter":
        """The reporter of the next training."""
        return _CellReporter(self, description, cost)


class _CellReporter:
    """Reports one cell of a grid into the grid's display: a context for all its work, in which a
    training reports its steps.
    """

    def __init__(self, grid: GridProgress, description: str, cost: float):
        self._grid, self._cost = grid, cost
        self._description, self._share = description, 0.0

    def __enter__(self) -> "_CellReporter":
        self._task = self._grid._progress.add_task(self._description, total=1, status="compiling…")
        return self

    def __exit__(self, *exception: Any) -> None:
        self._grid._progress.remove_task(self._task)
        self._advance(1.0)

    def _advance(self, share: float) -> None:
        self._grid.skip(self._cost * (share - self._share))
        self._share = share

    def start(self, total: int, done: int) -> None:
        self._total = total

    def update(self, done: int, *, steps_per_second: float, **measures: float) -> None:
        if self._grid._stopping:
            raise KeyboardInterrupt("the grid was stopped")
        status = status_text(steps_per_second, measures)
        self._grid._progress.update(self._task, completed=done, total=self._total, status=status)
        self._advance(done / self._total)

    def stop(self) -> None:
        """The training ended; what the cell does after it has no steps to show."""
        self._grid._progress.update(self._task, status="evaluating…")


_VISIBLE = "CUDA_VISIBLE_DEVICES"


def _gpu_names() -> list[str]:
    """The GPUs of this machine as the variable above calls them."""
    if jax.default_backend() != "gpu":
        return []
    chosen = os.environ.get(_VISIBLE)
    return chosen.split(",") if chosen else [str(i) for i in range(jax.local_device_count())]


def _one_gpu_each(queue: Any, jobs: int) -> Any:
    """A queue with the GPU of every process to come; None where there is no choice."""
    names = _gpu_names()
    for i in range(jobs):
        queue.put(names[i % len(names)] if len(names) > 1 else None)
    return queue


def _start_worker(gpus: Any) -> None:
    """Before a process does anything: it takes its GPU. Ctrl-C reaches every process of a terminal.
    A training saves and stops; between trainings the grid decides.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gpu = gpus.get()
    if gpu is not None:
        # JAX looks for devices when it is first used, which is later.
        os.environ[_VISIBLE] = gpu


def _listen(messages: Any, reporters: list[_CellReporter]) -> None:
    """Repeats in the grid's process what relays in other processes were called with."""
    while (message := messages.get()) is not None:
        index, method, args, measures = message
        try:
            getattr(reporters[index], method)(*args, **measures)
        except KeyboardInterrupt:
            # The grid was stopped; the relay learns of it from the event.
            continue


class _Relay:
    """A cell's reporter in another process."""

    def __init__(self, messages: Any, stop: Any, index: int):
        self._messages, self._stop, self._index = messages, stop, index

    def _send(self, method: str, *args: Any, **measures: float) -> None:
        self._messages.put((self._index, method, args, measures))

    def __enter__(self) -> "_Relay":
        self._send("__enter__")
        return self

    def __exit__(self, *exception: Any) -> None:
        self._send("__exit__", None, None, None)

    def start(self, total: int, done: int) -> None:
        self._send("start", total, done)

    def update(self, done: int, *, steps_per_second: float, **measures: float) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt("the grid was stopped")
        self._send("update", done, steps_per_second=steps_per_second, **measures)

    def stop(self) -> None:
        self._send("stop")
