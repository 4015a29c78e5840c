"""The training loop: runs a learner's steps, reports them, keeps checkpoints, and listens to
Ctrl-C.

Steps run in compiled chunks of a fraction of a second. Every step's randomness is folded from (key,
step), so that a resumed training continues as if never stopped. It refuses to know what is learned.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from nestedvi._types import Key
from nestedvi.arguments import check_folder, check_number, check_whole
from nestedvi.devices import to_host
from nestedvi.distributed import agree, is_first, num_processes, one_sentence_if_lost
from nestedvi.errors import CheckpointError, NestedviWarning, NonFiniteGradientError
from nestedvi.interrupts import Asked, interruptible, keeping, outside_of_jax
from nestedvi.progress import as_reporter
from nestedvi.train.learner import CHUNK, AbstractLearner, State

if TYPE_CHECKING:
    from nestedvi.storage.checkpoints import Checkpoints

__all__ = ["CHECKPOINT_SECONDS", "MAX_NONFINITE", "LoopOptions", "Training", "train"]

CHECKPOINT_SECONDS, MAX_NONFINITE = 60.0, 100
_FIRST_CHUNK, _SECONDS_PER_CHUNK = 8, 0.3
_NOT_KEPT = "Nothing was kept; with checkpoint=… the same call would go on from the last one."
_GO_ON = "Start all processes again: they go on from the last checkpoint in"


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
    if learner.average is not None:
        check_number("average, the decay of a mean,", learner.average, above=0, below=1)
    _check(options)
    with outside_of_jax():
        state = learner.start(key)
        if options.checkpoint is None:
            with one_sentence_if_lost(_NOT_KEPT):
                return _loop(key, learner, _Reached(0, state, ()), None, options)
        # Only those who keep checkpoints wait for orbax to be imported.
        from nestedvi.storage.checkpoints import Checkpoints

        store = Checkpoints(options.checkpoint, learner.fingerprint(key, state))
        with (
            closing(store),
            keeping(f"{store.folder} is where the same command goes on"),
            one_sentence_if_lost(f"{_GO_ON} {store.folder}."),
        ):
            return _loop(key, learner, _Reached(0, state, ()), store, options)


def _check(options: LoopOptions) -> None:
    check_whole("num_steps", options.num_steps)
    check_whole("max_nonfinite", options.max_nonfinite)
    check_number("checkpoint_seconds", options.checkpoint_seconds, least=0)
    check_folder("checkpoint", options.checkpoint)
    as_reporter(options.progress)


class _Reached(NamedTuple):
    """How far a training is. One value, so that an interrupt between two statements never sees the
    state of one step with the number of another; `records` are in the chunks that they came in.
    """

    done: int
    state: State
    records: tuple[Any, ...]
    seconds: float = 0.0

    def after(self, state: State, info: Any, count: int, seconds: float) -> "_Reached":
        part = jax.tree.map(lambda x: x[:count], to_host(info))
        return _Reached(self.done + count, state, (*self.records, part), self.seconds + seconds)

    def joined(self) -> "_Reached":
        whole = jax.tree.map(lambda *xs: np.concatenate(xs), *self.records)
        return self._replace(records=(whole,))


class _Saver:
    """Writes checkpoints where there is a folder for them. A disk that is full says so once in a
    while; it does not end a training.
    """

    def __init__(
        self, store: "Checkpoints | None", learner: AbstractLearner, every: float, done: int
    ):
        self._store, self._learner, self._every, self._done = store, learner, every, done
        self._last = time.perf_counter()

    @property
    def since(self) -> float:
        """Seconds since the last save."""
        return time.perf_counter() - self._last

    def is_due(self, since: float) -> bool:
        return since > self._every

    def lacks(self, done: int) -> bool:
        """Whether that step is still to be saved."""
        return self._store is not None and done > self._done

    def save(self, reached: _Reached, then: str) -> None:
        """Warns where it fails; `then` is what happens next."""
        if self._store is None or not reached.records:
            return
        record, seconds = reached.records[0], np.array([reached.seconds])
        try:
            self._store.save(reached.done, (self._learner.whole(reached.state), record, seconds))
            self._done = reached.done
        except CheckpointError as error:
            warnings.warn(f"{error} {then}", NestedviWarning, stacklevel=2)
        self._last = time.perf_counter()

    def where(self, done: int) -> str:
        """How a sentence about a stop at that step ends."""
        if self._store is None or self.lacks(done):
            return ""
        return f"; {self._store.folder} holds step {done}, the same call goes on from there"


def _empty_record(learner: AbstractLearner, state: State, key: Key, steps: int) -> Any:
    info = jax.eval_shape(learner.chunk, key, state, learner.inputs, 0, 1)[1]
    return jax.tree.map(lambda x: np.zeros((steps, *x.shape[1:]), x.dtype), info)


def _resume(
    store: "Checkpoints", learner: AbstractLearner, start: _Reached, key: Key, num_steps: int
) -> _Reached:
    def template(step: int):
        return (
            jax.tree.map(np.asarray, start.state),
            _empty_record(learner, start.state, key, step),
            np.zeros(1),
        )

    newest = store.restore(template)
    if newest is None:
        return start
    done, (state, record, seconds) = newest
    if done > num_steps:
        raise CheckpointError(
            f"{store.folder} holds step {done}, past the num_steps = {num_steps} asked for. Ask"
            f" for at least {done}, or use another folder."
        )
    return _Reached(done, jax.tree.map(jnp.asarray, state), (record,), float(seconds[0]))


def _loop(
    key: Key,
    learner: AbstractLearner,
    reached: _Reached,
    store: "Checkpoints | None",
    options: LoopOptions,
) -> Training:
    num_steps, reporter = options.num_steps, as_reporter(options.progress if is_first() else False)
    if store is not None:
        reached = _resume(store, learner, reached, key, num_steps)
    saver = _Saver(store, learner, options.checkpoint_seconds, reached.done)
    run = _Run(key, learner, reached, saver, reporter, options)
    reporter.start(num_steps, reached.done)
    try:
        with interruptible() as asked:
            try:
                while run.reached.done < num_steps:
                    run.chunk(asked)
                run.save("The training is complete and returned, but not saved.")
            except KeyboardInterrupt as stop:
                # Ours, or a reporter's that was asked to stop: what is saved is the last whole
                # chunk. One process alone cannot save what lies on several.
                if run.stopping or num_processes() == 1:
                    run.save("What was trained since the last checkpoint is lost.")
                where = saver.where(run.reached.done)
                text = str(stop) or f"stopped at step {run.reached.done} of {num_steps}"
                raise KeyboardInterrupt(f"{text}{where}") from None
    finally:
        reporter.stop()
    return _result(key, learner, run.reached, run.pace)


class _Run:
    """A training under way: how far it is, and what the next chunk needs."""

    def __init__(
        self,
        key: Key,
        learner: AbstractLearner,
        reached: _Reached,
        saver: _Saver,
        reporter: Any,
        options: LoopOptions,
    ):
        state, self._inputs, self._key = learner.place(key, reached.state)
        self.reached = reached._replace(state=state)
        self._learner, self._saver, self._reporter = learner, saver, reporter
        self._options = options
        self._count, self.pace, self.stopping = _FIRST_CHUNK, _Pace(), False

    def chunk(self, asked: Asked) -> None:
        """Steps of a fraction of a second, their report, and a checkpoint where one is due."""
        pace, num_steps = self.pace, self._options.num_steps
        state = self._step(min(self._count, CHUNK, num_steps - self.reached.done))
        asked.unsaved = self._saver.lacks(self.reached.done)
        _check_streak(self._learner, state, self._options.max_nonfinite)
        if pace.known or self.reached.done == num_steps:
            self._report(asked)
        # Clocks and signals differ between processes.
        self.stopping, (elapsed, since) = agree(asked.is_set(), pace.elapsed, self._saver.since)
        self._count = pace.next_count(self._count, elapsed)
        if self._saver.is_due(since):
            self.save("Training goes on, and saving is tried again later.")
            asked.unsaved = self._saver.lacks(self.reached.done)
        if self.stopping and self.reached.done < num_steps:
            raise KeyboardInterrupt

    def _step(self, count: int) -> State:
        self._count, learner, reached = count, self._learner, self.reached
        self.pace.begin()
        with learner.on_devices():
            state, info = jax.block_until_ready(
                learner.chunk(self._key, reached.state, self._inputs, reached.done, count)
            )
        self.reached = reached.after(state, info, count, self.pace.tick(count))
        return state

    def _report(self, asked: Asked) -> None:
        measures = self._learner.measures(self.reached.records[-1])
        with _stop_all_together(asked):
            self._reporter.update(self.reached.done, steps_per_second=self.pace.rate, **measures)

    def save(self, then: str) -> None:
        """Writes a checkpoint; `then` is what happens next where that fails."""
        self.reached = self.reached.joined() if self.reached.records else self.reached
        self._saver.save(self.reached, then)


def _result(key: Key, learner: AbstractLearner, reached: _Reached, pace: "_Pace") -> Training:
    state = learner.whole(reached.state)
    record = reached.records[0] if reached.records else _empty_record(learner, state, key, 0)
    learned = learner.learned(state)
    if learner.placement is not None:
        learned = jax.tree.map(jnp.asarray, to_host(learned))
    return Training(
        learned,
        record,
        to_host(state.skipped),
        reached.done,
        reached.seconds,
        pace.median,
    )


class _Pace:
    """How fast chunks run, and how long the next one should be. The first one compiles."""

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._chunks, self._last = 0, time.perf_counter()

    def begin(self) -> None:
        self._began = time.perf_counter()

    def tick(self, count: int) -> float:
        """A chunk ended: the seconds since the last one did, whatever was done in between."""
        now = time.perf_counter()
        self.elapsed, since, self._last = now - self._began, now - self._last, now
        self.rate = count / self.elapsed
        self._chunks += 1
        if self.known:
            self._steps.append(self.elapsed / count)
        return since

    @property
    def known(self) -> bool:
        return self._chunks > 1

    @property
    def median(self) -> float:
        return float(np.median(self._steps)) if self._steps else float("nan")

    def next_count(self, count: int, elapsed: float) -> int:
        """After a chunk of `count` that took so many seconds."""
        if not self.known:
            return count
        return max(1, int(count * np.clip(_SECONDS_PER_CHUNK / elapsed, 0.5, 8.0)))


@contextmanager
def _stop_all_together(asked: Asked) -> Iterator[None]:
    """A reporter of one process that is asked to stop stops all of them."""
    try:
        yield
    except KeyboardInterrupt:
        if num_processes() == 1:
            raise
        asked.set()


def _check_streak(learner: AbstractLearner, state: State, max_nonfinite: int) -> None:
    streak = to_host(state.longest)
    if (streak < max_nonfinite).all():
        return
    level = int(np.argmax(streak.reshape(-1, streak.shape[-1]).max(axis=0))) + 1
    raise NonFiniteGradientError(
        f"The gradient of {learner.what} {level} was not finite {int(streak.max())} times in a row"
        " (all were skipped). Check the log density there for NaN or infinite derivatives, lower"
        " the learning rate, or use more levels."
    )
