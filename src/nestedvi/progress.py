"""What a user sees while one training runs: step, log Ẑ, ESS, steps per second, time left.

A training reports to a `Reporter`; many trainings in one display are `grid.progress`. It only
shows: nothing here decides how a training goes on.
"""

from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

__all__ = ["ProgressBar", "Reporter", "Silent", "Stretch", "as_reporter", "status_text"]


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


def status_text(steps_per_second: float, measures: dict[str, float]) -> str:
    """Measures and speed in a few words, as bars show them."""
    shown = [
        _FORMATS.get(name, name.replace("_", " ") + " {:.4g}").format(value)
        for name, value in measures.items()
    ]
    return "  ".join([*shown, f"{steps_per_second:.0f} steps/s"])


class ProgressBar:
    """A live bar on the terminal (standard error, so that results can be piped)."""

    def __init__(self, description: str = "training", console: Console | None = None):
        self.description = description
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
        status = status_text(steps_per_second, measures)
        self._progress.update(self._task, completed=done, status=status)

    def stop(self) -> None:
        self._progress.stop()


def as_reporter(progress: Any) -> Reporter:
    """A reporter from True, False, or a reporter."""
    if progress is True:
        return ProgressBar()
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
