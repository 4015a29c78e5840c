"""What a user sees while a training or an answer runs: step or stage, log Ẑ, ESS, steps per second,
time left.

A training reports to a `Reporter`, and so does an answer in stages; many trainings in one display
are `grid.progress`. It only shows and times: nothing here decides how a run goes on.
"""

import time
from functools import cache
from typing import Any, Protocol

import jax.monitoring
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

__all__ = ["ProgressBar", "Reporter", "Silent", "Stages", "Stretch", "as_reporter", "status_text"]

# What a display shows as the whole of an answer's stages; most need fewer.
_MOST_STAGES = 9


class Reporter(Protocol):
    """Receives a training's progress."""

    def start(self, total: int, done: int) -> None:
        """Training begins at step `done` of `total`; compilation comes first."""

    def update(self, done: int, *, steps_per_second: float, **measures: float) -> None:
        """`done` steps are complete; a sampler's measures are log_Z_hat and ess_percent."""

    def stop(self) -> None:
        """Training ended, for whatever reason."""


class Silent:
    """Reports nothing."""

    def start(self, total: int, done: int) -> None: ...

    def update(self, done: int, *, steps_per_second: float, **measures: float) -> None: ...

    def stop(self) -> None: ...


_FORMATS = {"log_Z_hat": "log Ẑ {:.3f}", "ess_percent": "ESS {:.0f}%"}


def status_text(steps_per_second: float | None, measures: dict[str, float]) -> str:
    """Measures and speed, where there is one, in a few words, as bars show them."""
    shown = [
        _FORMATS.get(name, name.replace("_", " ") + " {:.4g}").format(value)
        for name, value in measures.items()
    ]
    speed = [] if steps_per_second is None else [f"{steps_per_second:.0f} steps/s"]
    return "  ".join([*shown, *speed])


class ProgressBar:
    """A live bar on the terminal (standard error, so that results can be piped)."""

    def __init__(self, description: str = "training", console: Console | None = None):
        self.description, self._in_stages = description, False
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("step {task.completed}/{task.total}"),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )

    def start(self, total: int, done: int) -> None:
        self._progress.start()
        self._task = self._progress.add_task(
            self.description, total=total, completed=done, status="compiling…"
        )

    def update(self, done: int, *, steps_per_second: float, **measures: float) -> None:
        # Stages are no steps of one kind, and have no speed.
        status = status_text(None if self._in_stages else steps_per_second, measures)
        self._progress.update(self._task, completed=done, status=status)

    def stage(self, name: str) -> None:
        """What an answer does now."""
        self._in_stages = True
        self._progress.update(self._task, description=f"{self.description}: {name}")

    def stop(self) -> None:
        self._progress.stop()


def as_reporter(progress: Any, description: str = "training") -> Reporter:
    """A reporter from True (a bar with that description), False, or a reporter."""
    if progress is True:
        return ProgressBar(description)
    if progress is False or progress is None:
        return Silent()
    if not all(callable(getattr(progress, name, None)) for name in ("start", "update", "stop")):
        raise TypeError(
            "progress is True, False, or an object with start, update and stop; got"
            f" {progress!r:.60}."
        )
    return progress


class Stretch:
    """A part of a longer work: its steps count `each` in `total`, after `before` that were done by
    other parts.
    """

    def __init__(self, whole: Reporter, total: int, before: int = 0, each: int = 1):
        self._whole, self._total, self._before, self._each = whole, total, before, each

    def _done(self, done: int) -> int:
        return self._before + self._each * done

    def start(self, total: int, done: int) -> None:
        self._whole.start(self._total, self._done(done))

    def update(self, done: int, *, steps_per_second: float, **measures: float) -> None:
        self._whole.update(self._done(done), steps_per_second=steps_per_second, **measures)

    def stop(self) -> None:
        self._whole.stop()


class _Compiler:
    """Counts the seconds that XLA compiles, in this process, from its first use on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            self.seconds += duration_secs


@cache
def _compiler() -> _Compiler:
    return _Compiler()


class Stages:
    """The display ends with the block, however that ends. How many stages there will be is not
    known: it is said which one is under way.
    """

    def __init__(self, progress: Any):
        self._reporter, self._count, self._name = as_reporter(progress, "sampling"), 0, ""
        self._seconds: dict[str, float] = {}

    def __enter__(self) -> "Stages":
        self._began, self._compiled = time.perf_counter(), _compiler().seconds
        self._reporter.start(_MOST_STAGES, 0)
        return self

    def __exit__(self, *_: Any) -> None:
        self._close()
        self._reporter.stop()

    def _close(self) -> None:
        if self._name:
            spent = time.perf_counter() - self._since
            self._seconds[self._name] = self._seconds.get(self._name, 0.0) + spent
            self._name = ""

    def begin(self, name: str) -> None:
        """The next stage. A reporter is told its name if it has a method `stage`."""
        self._close()
        self._name, self._since = name, time.perf_counter()
        tell = getattr(self._reporter, "stage", None)
        if tell is not None:
            tell(name)

    def done(self, **measures: Any) -> None:
        """One more stage is done, with what it measured."""
        self._count += 1
        rate = self._count / (time.perf_counter() - self._began)
        measures = {name: float(x) for name, x in measures.items()}
        self._reporter.update(self._count, steps_per_second=rate, **measures)

    @property
    def timings(self) -> dict[str, float]:
        """Seconds of every stage so far, and those of them that were compilation."""
        self._close()
        return {**self._seconds, "compilation": _compiler().seconds - self._compiled}
