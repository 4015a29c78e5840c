"""The training loop: runs a learner's steps, reports them, keeps checkpoints, and listens to
Ctrl-C.

Steps run in compiled chunks of a fraction of a second. Every step's randomness is folded from (key,
step), so that a resumed training continues as if never stopped. It refuses to know what is learned.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from nestedvi._types import Key
from nestedvi.errors import CheckpointError, NonFiniteGradientError
from nestedvi.progress import as_reporter
from nestedvi.train.learner import CHUNK, AbstractLearner, State

if TYPE_CHECKING:
    from nestedvi.storage.checkpoints import Checkpoints

__all__ = ["CHECKPOINT_SECONDS", "MAX_NONFINITE", "LoopOptions", "Training", "train"]

CHECKPOINT_SECONDS, MAX_NONFINITE = 60.0, 100
_SECONDS_PER_CHUNK = 0.3


class LoopOptions(NamedTuple):
    """How a training is run, whatever it learns: the arguments of `fit` that are the loop's."""

    num_steps: int
    progress: Any = False
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    max_nonfinite: int = MAX_NONFINITE


class Training(NamedTuple):
    """The learned parameters, every step's record (numpy, leading axis steps), how many updates
    each level's gradient spoilt, the seconds spent, and the median time of a step (NaN if nothing
    ran after the first chunk, which compiles)."""

    params: PyTree
    record: Any
    skipped: Int[np.ndarray, "*restarts levels"]
    num_steps: int
    seconds: float
    step_seconds: float


def train(key: Key, learner: AbstractLearner, options: LoopOptions) -> Training:
    """Trains a learner for `options.num_steps` steps."""
    if learner.average is not None and not 0 < learner.average < 1:
        raise ValueError(f"The decay of an average is between 0 and 1; got {learner.average}.")
    state = learner.start(key)
    store = None
    if options.checkpoint is not None:
        # Only those who keep checkpoints wait for orbax to be imported.
        from nestedvi.storage.checkpoints import Checkpoints

        store = Checkpoints(options.checkpoint, learner.fingerprint(key, state))
    try:
        return _loop(key, learner, state, store, options)
    finally:
        if store is not None:
            store.close()


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C sets an event instead of raising, so that no chunk is torn; a second one raises at
    once.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    previous = signal.getsignal(signal.SIGINT)

    def handler(signum, frame):
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    signal.signal(signal.SIGINT, handler)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, previous)


class _History:
    """The record of all steps so far, in the chunks they came in."""

    def __init__(self):
        self.parts: list[Any] = []

    def add(self, info: Any, count: int) -> Any:
        part = jax.tree.map(lambda x: np.asarray(x)[:count], info)
        self.parts.append(part)
        return part

    def whole(self) -> Any:
        self.parts = [jax.tree.map(lambda *xs: np.concatenate(xs), *self.parts)]
        return self.parts[0]


def _empty_record(learner: AbstractLearner, state: State, key: Key, steps: int) -> Any:
    info = jax.eval_shape(learner.chunk, key, state, learner.inputs, 0, 1)[1]
    return jax.tree.map(lambda x: np.zeros((steps, *x.shape[1:]), x.dtype), info)


def _resume(
    store: "Checkpoints", learner: AbstractLearner, state: State, key: Key
) -> tuple[int, State, list[Any], float]:
    def template(step: int):
        return (
            jax.tree.map(np.asarray, state),
            _empty_record(learner, state, key, step),
            np.zeros(1),
        )

    newest = store.restore(template)
    if newest is None:
        return 0, state, [], 0.0
    done, (state, record, seconds) = newest
    return done, jax.tree.map(jnp.asarray, state), [record], float(seconds[0])


def _loop(
    key: Key,
    learner: AbstractLearner,
    state: State,
    store: "Checkpoints | None",
    options: LoopOptions,
) -> Training:
    num_steps, reporter = options.num_steps, as_reporter(options.progress)
    done, history, before = 0, _History(), 0.0
    if store is not None:
        done, state, history.parts, before = _resume(store, learner, state, key)
        if done > num_steps:
            raise CheckpointError(
                f"{store.folder} holds step {done}, past the num_steps = {num_steps} asked for. Ask"
                f" for at least {done}, or use another folder."
            )
    count, began, saved = 8, time.perf_counter(), time.perf_counter()

    def spent():
        return before + time.perf_counter() - began

    def save():
        if store is not None:
            store.save(done, (state, history.whole(), np.array([spent()])))

    reporter.start(num_steps, done)
    try:
        with _interruptible() as asked:
            compiled, pace = False, []
            while done < num_steps:
                tick = time.perf_counter()
                count = min(count, CHUNK, num_steps - done)
                state, info = jax.block_until_ready(
                    learner.chunk(key, state, learner.inputs, done, count)
                )
                part, elapsed = history.add(info, count), time.perf_counter() - tick
                done += count
                _check_streak(learner, state, options.max_nonfinite)
                if compiled or done == num_steps:
                    reporter.update(
                        done, steps_per_second=count / elapsed, **learner.measures(part)
                    )
                if compiled:
                    pace.append(elapsed / count)
                    count = max(1, int(count * np.clip(_SECONDS_PER_CHUNK / elapsed, 0.5, 8.0)))
                compiled = True
                if time.perf_counter() - saved > options.checkpoint_seconds:
                    save()
                    saved = time.perf_counter()
                if asked.is_set() and done < num_steps:
                    where = (
                        f"; {store.folder} holds step {done}, the same call goes on from there"
                        if store is not None
                        else ""
                    )
                    raise KeyboardInterrupt(f"stopped at step {done} of {num_steps}{where}")
            save()
    except KeyboardInterrupt:
        # Ours, or a reporter's that was asked to stop: the state is that of the last whole chunk.
        if history.parts:
            save()
        raise
    finally:
        reporter.stop()
    record = history.whole() if history.parts else _empty_record(learner, state, key, 0)
    step_seconds = float(np.median(pace)) if pace else float("nan")
    return Training(
        learner.learned(state), record, np.asarray(state.skipped), done, spent(), step_seconds
    )


def _check_streak(learner: AbstractLearner, state: State, max_nonfinite: int) -> None:
    streak = np.asarray(state.longest)
    if (streak < max_nonfinite).all():
        return
    level = int(np.argmax(streak.reshape(-1, streak.shape[-1]).max(axis=0))) + 1
    raise NonFiniteGradientError(
        f"The gradient of {learner.what} {level} was not finite {int(streak.max())} times in a row"
        " (all were skipped). Check the log density there for NaN or infinite derivatives, lower"
        " the learning rate, or use more levels."
    )
