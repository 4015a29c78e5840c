"""What a user sees while training runs: step, log Ẑ, ESS, steps per second, time left."""

from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

__all__ = ["ProgressBar", "Reporter", "Silent", "as_reporter"]


class Reporter(Protocol):
    """Receives a training's progress."""

    def start(self, total: int, done: int) -> None:
        """Training begins at step `done` of `total`; compilation comes first."""

    def update(self, done: int, *, log_Z_hat: float, ess_percent: float, steps_per_second: float) -> None:
        """`done` steps are complete."""

    def stop(self) -> None:
        """Training ended, for whatever reason."""


class Silent:
    """Reports nothing."""

    def start(self, total: int, done: int) -> None: ...

    def update(self, done: int, *, log_Z_hat: float, ess_percent: float, steps_per_second: float) -> None: ...

    def stop(self) -> None: ...


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
        self._task = self._progress.add_task(self.description, total=total, completed=done, status="compiling…")

    def update(self, done: int, *, log_Z_hat: float, ess_percent: float, steps_per_second: float) -> None:
        status = f"log Ẑ {log_Z_hat:.3f}  ESS {ess_percent:.0f}%  {steps_per_second:.0f} steps/s"
        self._progress.update(self._task, completed=done, status=status)

    def stop(self) -> None:
        self._progress.stop()


def as_reporter(progress: Any) -> Reporter:
    """A reporter from True, False, or a reporter."""
    if progress is True:
        return ProgressBar()
    if progress is False or progress is None:
        return Silent()
    return progress
