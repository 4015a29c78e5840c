"""Progress of an answer in stages instead of training steps, and the time that each took."""

import time
from typing import Any

import jax.monitoring

from nestedvi.progress import as_reporter

__all__ = ["Stages"]

# What a display shows as the whole; most answers need fewer.
_MOST = 8


class _Compiler:
    """Counts the seconds that XLA compiles, in this process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            self.seconds += duration_secs


_COMPILER = _Compiler()


class Stages:
    """The display ends with the block, however that ends. How many stages there will be is not
    known: it is said which one is under way.
    """

    def __init__(self, progress: Any):
        self._reporter, self._count, self._name = as_reporter(progress), 0, ""
        self._seconds: dict[str, float] = {}

    def __enter__(self) -> "Stages":
        self._began, self._compiled = time.perf_counter(), _COMPILER.seconds
        self._reporter.start(_MOST, 0)
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
        """The next stage."""
        self._close()
        self._name, self._since = name, time.perf_counter()

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
        return {**self._seconds, "compilation": _COMPILER.seconds - self._compiled}
