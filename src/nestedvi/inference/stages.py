"""Progress of an answer in stages instead of training steps."""

import time
from typing import Any

from nestedvi.progress import as_reporter

__all__ = ["Stages"]


class Stages:
    """The display ends with the block, however that ends."""

    def __init__(self, progress: Any, total: int):
        self._reporter, self._count, self._total = as_reporter(progress), 0, total

    def __enter__(self) -> "Stages":
        self._began = time.perf_counter()
        self._reporter.start(self._total, 0)
        return self

    def __exit__(self, *_: Any) -> None:
        self._reporter.stop()

    def done(self, **measures: Any) -> None:
        """One more stage is done."""
        self._count += 1
        rate = self._count / (time.perf_counter() - self._began)
        measures = {name: float(x) for name, x in measures.items()}
        self._reporter.update(self._count, steps_per_second=rate, **measures)
