"""The training loop: levels scheduled by `schedules`, parameters updated by optax, state kept by `checkpoint`.

Steps run in compiled chunks of a fraction of a second; between chunks the host reports progress, saves, and listens to Ctrl-C.
Every step's randomness is folded from (key, step), so that a resumed training continues as if never stopped.
"""

import hashlib
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from nestedvi._types import Key
from nestedvi.errors import CheckpointError, NonFiniteGradientError
from nestedvi.paths.base import AbstractFixedSupportPath
from nestedvi.sampler.nested import NestedSampler
from nestedvi.train.checkpoint import Checkpoints, describe
from nestedvi.train.objective import Objective
from nestedvi.train.progress import as_reporter
from nestedvi.train.schedules import StepInfo, gradient, initial_population

__all__ = ["CHUNK", "Fit", "Record", "Trainer", "fit"]

CHUNK = 512
_SECONDS_PER_CHUNK = 0.3
_PROBED_STEPS = (0, 10, 100, 1000, 10_000, 100_000)


class Record(NamedTuple):
    """What every step reported: leading axis steps, then restarts if there are several. `level_*` end in an axis K."""

    log_Z_hat: Float[np.ndarray, "steps *restarts"]
    ess: Float[np.ndarray, "steps *restarts"]
    level_ess: Float[np.ndarray, "steps *restarts levels"]
    level_divergence: Float[np.ndarray, "steps *restarts levels"]


class Fit(NamedTuple):
    """A trained sampler, the record of its training, how many updates each level's gradient spoilt, the seconds spent, and
    the median time of a step (NaN if nothing ran after the first chunk, which compiles)."""

    sampler: NestedSampler
    record: Record
    skipped: Int[np.ndarray, "*restarts levels"]
    num_steps: int
    seconds: float
    step_seconds: float


class _Average(NamedTuple):
    """An exponential moving average: Σ d^age p and Σ d^age, whose ratio is free of the start's weight."""

    total: PyTree
    mass: Float[Array, ""]

    def update(self, params: PyTree, decay: float) -> "_Average":
        total = jax.tree.map(lambda t, p: decay * t + (1 - decay) * p, self.total, params)
        return _Average(total, decay * self.mass + (1 - decay))

    def params(self) -> PyTree:
        return jax.tree.map(lambda t: t / self.mass.astype(t.dtype), self.total)


class _State(NamedTuple):
    """What the next step needs; `longest` is the longest streak of non-finite gradients in the present chunk."""

    params: PyTree
    opt_state: PyTree
    population: PyTree
    skipped: Int[Array, " levels"]
    streak: Int[Array, " levels"]
    longest: Int[Array, " levels"]
    average: _Average | None


def fit(
    key: Key,
    sampler: NestedSampler,
    objective: Objective | None = None,
    *,
    num_steps: int,
    num_particles: int,
    optimiser: optax.GradientTransformation | None = None,
    schedule: str = "sequential",
    restarts: int | None = None,
    progress: Any = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    average: float | None = None,
    max_nonfinite: int = 100,
) -> Fit:
    """Trains a sampler.

    **Arguments:**

    - `objective`: what to minimise over what; by default the reverse KL over forward and reverse kernels.
    - `num_particles`: S, the particles at every level.
    - `optimiser`: any optax optimiser; Adam with 1e-3 by default.
    - `schedule`: "sequential" (memory flat in K), "two-phase", or "level-parallel" (time flat in K on an accelerator).
    - `restarts`: train that many samplers side by side; `sampler` must then have been built with a leading axis of that size on
      every array (`nvi.stack(make, key, restarts)`).
    - `progress`: True for a live bar, or an object with `start`, `update` and `stop`.
    - `checkpoint`: a folder. Training resumes from it if it holds a checkpoint, and saves to it every `checkpoint_seconds`, at
      the end, and on Ctrl-C.
    - `average`: return the exponential moving average of the parameters with this decay (0.999, say) instead of the last ones; it
      takes out the noise that a constant learning rate leaves in them.
    - `max_nonfinite`: stop with an error after that many non-finite gradients in a row; each is skipped and counted.
    """
    objective = Objective() if objective is None else objective
    if not isinstance(objective, Objective):
        raise TypeError(
            f"The objective is an nvi.Objective; got {objective!r}. For a method's use nvi.get_method(name).make_objective(), "
            "for a divergence nvi.Objective(name)."
        )
    if num_steps < 1 or num_particles < 1:
        raise ValueError(f"Training needs num_steps ≥ 1 and num_particles ≥ 1; got {num_steps} and {num_particles}.")
    if average is not None and not 0 < average < 1:
        raise ValueError(f"The decay of an average is between 0 and 1; got {average}.")
    trainer = Trainer(sampler, objective, optimiser, schedule, num_particles, restarts, average)
    state = trainer.start(key)
    store = None
    if checkpoint is not None:
        store = Checkpoints(checkpoint, trainer.fingerprint(key, state))
    try:
        return _loop(key, trainer, state, store, num_steps, as_reporter(progress), checkpoint_seconds, max_nonfinite)
    finally:
        if store is not None:
            store.close()


class Trainer:
    """One compiled training step and its state, for one sampler or for several restarts under vmap."""

    def __init__(self, sampler, objective, optimiser, schedule, num_particles, restarts, average=None):
        self.objective, self.schedule = objective, schedule
        self.optimiser = optax.adam(1e-3) if optimiser is None else optimiser
        self.num_particles, self.restarts, self.average = num_particles, restarts, average
        one = sampler if restarts is None else _first_restart(sampler, restarts)
        self.num_levels = one.num_levels
        trainable = objective.trainable(one)
        if not any(jax.tree.leaves(trainable)):
            raise ValueError(
                f"Nothing to learn: no parameters in the groups {sorted(objective.learn)} of this sampler. "
                "Plain AIS and SMC are run with evaluate(), not fitted."
            )
        # Options that contradict the sampler's kernels are said before anything is compiled.
        for k in range(2, one.num_levels + 1):
            objective.flow(one.level(k).transition)
        # Weakly typed arrays would turn strong after the first update, and the step would be compiled twice.
        sampler = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype) if eqx.is_inexact_array(x) else x, sampler)
        self.params, rest = eqx.partition(sampler, trainable)
        self.fixed, self.static = eqx.partition(rest, eqx.is_array)
        self.chunk = jax.jit(self._chunk)

    def start(self, key: Key) -> _State:
        """The state before the first step."""

        def one(key, params, fixed):
            population = initial_population(
                jax.random.fold_in(key, 0), self.sampler(params, fixed), self.schedule, self.num_particles
            )
            zeros = jnp.zeros(self.num_levels, jnp.int32)
            average = None
            if self.average is not None:
                average = _Average(jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))
            return _State(params, self.optimiser.init(params), population, zeros, zeros, zeros, average)

        # Copies: the caller's arrays must outlive training.
        return jax.jit(self._over_restarts(one))(self._keys(key), self.params, self.fixed)

    def sampler(self, params, fixed) -> NestedSampler:
        return eqx.combine(params, fixed, self.static)

    def learned(self, state: _State) -> PyTree:
        """The parameters that training returns: the last ones, or their average."""
        return state.params if state.average is None else self._over_restarts(lambda average: average.params())(state.average)

    def _keys(self, key: Key) -> Key:
        return key if self.restarts is None else jax.random.split(key, self.restarts)

    def _over_restarts(self, fn):
        return fn if self.restarts is None else jax.vmap(fn)

    def _step(self, key: Key, state: _State, fixed: PyTree) -> tuple[_State, StepInfo]:
        result = gradient(
            key,
            self.sampler(state.params, fixed),
            self.objective,
            self.num_particles,
            schedule=self.schedule,
            population=state.population,
        )
        good = jnp.all(result.finite)
        updates, opt_state = self.optimiser.update(result.grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        # A non-finite gradient touches neither the parameters nor the optimiser's memory.
        keep = lambda new, old: jnp.where(good, new, old)  # noqa: E731
        bad = jnp.logical_not(result.finite).astype(jnp.int32)
        streak = (state.streak + bad) * bad
        params = jax.tree.map(keep, params, state.params)
        new = _State(
            params,
            jax.tree.map(keep, opt_state, state.opt_state),
            result.population,
            state.skipped + bad,
            streak,
            jnp.maximum(state.longest, streak),
            None if state.average is None else state.average.update(params, self.average),
        )
        return new, result.info

    def _chunk(self, key: Key, state: _State, fixed: PyTree, start: Any, count: Any) -> tuple[_State, StepInfo]:
        """`count` ≤ `CHUNK` steps from step `start`; the count is an array so that one compilation serves all."""
        keys = self._keys(key)

        def step(i, carry):
            state, records = carry
            here = self._over_restarts(lambda k: jax.random.fold_in(k, i + 1))(keys)
            state, info = self._over_restarts(self._step)(here, state, fixed)
            return state, jax.tree.map(lambda all_, x: all_.at[i - start].set(x), records, info)

        shapes = jax.eval_shape(self._over_restarts(self._step), keys, state, fixed)[1]
        records = jax.tree.map(lambda s: jnp.zeros((CHUNK, *s.shape), s.dtype), shapes)
        # A streak may end before its chunk does.
        return jax.lax.fori_loop(start, start + count, step, (state._replace(longest=state.streak), records))

    def fingerprint(self, key: Key, state: _State) -> dict[str, Any]:
        """What must agree for a checkpoint to be continued."""
        return {
            "key": np.asarray(jax.random.key_data(key)).tolist(),
            "schedule": self.schedule,
            "objective": _describe_objective(self.objective),
            "num_particles": self.num_particles,
            "restarts": self.restarts,
            "average": self.average,
            "optimiser": {"state": describe(state.opt_state), "probe": self._probe(state)},
            "parameters": describe(state.params),
            "fixed": _digest_arrays(self.fixed),
            "structure": _describe_static(self.static),
            "densities": self._probe_path(state),
            "start": _digest_arrays(self.params),
        }

    def _probe_path(self, state: _State) -> list[str]:
        """A density may be any function: its values at one draw from q_1 tell two of them apart."""

        def one(params, fixed):
            sampler = self.sampler(params, fixed)
            path, first = sampler.path, sampler.first_level()
            stats = path.stats(sampler.initial.sample(jax.random.key(1)))
            values = [path.log_gamma(first.theta, stats, None)]
            if sampler.homogeneous and isinstance(path, AbstractFixedSupportPath):
                values += [path.log_density(sampler.level(k).theta, stats) for k in range(2, min(sampler.num_levels, 4) + 1)]
                values.append(path.log_density(sampler.level(sampler.num_levels).theta, stats))
            return jnp.stack(values)

        return [f"{x:.4g}" for x in np.ravel(jax.jit(self._over_restarts(one))(state.params, self.fixed))]

    def _probe(self, state: _State) -> list[str]:
        """An optimiser is made of closures: its answers to changing gradients, early and late in training, tell two apart."""

        def one(params, opt_state):
            sizes = []
            for i, step in enumerate(_PROBED_STEPS):
                at_step = lambda x, step=step: jnp.full_like(x, step) if jnp.issubdtype(x.dtype, jnp.integer) else x  # noqa: E731
                grads = jax.tree.map(lambda x, size=0.1 * (-1) ** i / (i + 1): jnp.full_like(x, size), params)
                updates, opt_state = self.optimiser.update(grads, jax.tree.map(at_step, opt_state), params)
                sizes.append(sum(jnp.sum(jnp.abs(u)) for u in jax.tree.leaves(updates)))
            return jnp.stack(sizes)

        sizes = jax.jit(self._over_restarts(one))(state.params, state.opt_state)
        return [f"{x:.5g}" for x in np.ravel(sizes)]


def _describe_objective(objective: Objective) -> dict[str, Any]:
    """The same text in every process, which a set's own order is not; a divergence given by a function is told by its values."""
    fields = {name: sorted(x) if isinstance(x, frozenset) else repr(x) for name, x in vars(objective).items()}
    return {**fields, "slope": [f"{x:.5g}" for x in np.asarray(objective.divergence.slope(jnp.array([-2.0, 1.0])))]}


def _describe_static(static: PyTree) -> str:
    """Everything of a sampler that is not an array (resampling rules, schedules, step counts), without memory addresses."""
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", repr(static)).encode()).hexdigest()[:16]


def _digest_arrays(tree: PyTree) -> str:
    digest = hashlib.sha256()
    for x in jax.tree.leaves(tree):
        digest.update(np.asarray(x).tobytes())
    return digest.hexdigest()[:16]


def _first_restart(sampler: NestedSampler, restarts: int) -> NestedSampler:
    arrays, static = eqx.partition(sampler, eqx.is_array)
    sizes = {x.shape[0] if x.ndim else 0 for x in jax.tree.leaves(arrays)}
    if sizes != {restarts}:
        raise ValueError(
            f"With restarts = {restarts} every array of the sampler needs a leading axis of that size; got {sorted(sizes)}. "
            "Build it with nvi.stack(make, key, restarts)."
        )
    return eqx.combine(jax.tree.map(lambda x: x[0], arrays), static)


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C sets an event instead of raising, so that no chunk is torn; a second one raises at once."""
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
        self.parts: list[Record] = []

    def add(self, info: StepInfo, count: int) -> Record:
        part = Record(*(np.asarray(x)[:count] for x in info))
        self.parts.append(part)
        return part

    def whole(self) -> Record:
        self.parts = [Record(*(np.concatenate(xs) for xs in zip(*self.parts, strict=True)))]
        return self.parts[0]


def _resume(store: Checkpoints, trainer: Trainer, state: _State, key: Key) -> tuple[int, _State, list[Record], float]:
    info = jax.eval_shape(trainer.chunk, key, state, trainer.fixed, 0, 1)[1]

    def template(step: int):
        record = Record(*(np.zeros((step, *x.shape[1:]), x.dtype) for x in info))
        return jax.tree.map(np.asarray, state), record, np.zeros(1)

    found = store.restore(template)
    if found is None:
        return 0, state, [], 0.0
    done, (state, record, seconds) = found
    return done, jax.tree.map(jnp.asarray, state), [record], float(seconds[0])


def _loop(key, trainer: Trainer, state, store, num_steps, reporter, checkpoint_seconds, max_nonfinite) -> Fit:
    done, history, before = 0, _History(), 0.0
    if store is not None:
        done, state, history.parts, before = _resume(store, trainer, state, key)
        if done > num_steps:
            raise CheckpointError(
                f"{store.folder} holds step {done}, past the num_steps = {num_steps} asked for. Ask for at least {done}, or use "
                "another folder."
            )
    count, began, saved = 8, time.perf_counter(), time.perf_counter()
    spent = lambda: before + time.perf_counter() - began  # noqa: E731
    save = lambda: store is not None and store.save(done, (state, history.whole(), np.array([spent()])))  # noqa: E731
    reporter.start(num_steps, done)
    try:
        with _interruptible() as asked:
            compiled, pace = False, []
            while done < num_steps:
                tick = time.perf_counter()
                count = min(count, CHUNK, num_steps - done)
                state, info = jax.block_until_ready(trainer.chunk(key, state, trainer.fixed, done, count))
                part, elapsed = history.add(info, count), time.perf_counter() - tick
                done += count
                _check_streak(state, max_nonfinite)
                if compiled or done == num_steps:
                    _report(reporter, done, part, trainer.num_particles, count / elapsed)
                if compiled:
                    pace.append(elapsed / count)
                    count = max(1, int(count * np.clip(_SECONDS_PER_CHUNK / elapsed, 0.5, 8.0)))
                compiled = True
                if time.perf_counter() - saved > checkpoint_seconds:
                    save()
                    saved = time.perf_counter()
                if asked.is_set() and done < num_steps:
                    where = f"; {store.folder} holds step {done}, the same call goes on from there" if store is not None else ""
                    raise KeyboardInterrupt(f"stopped at step {done} of {num_steps}{where}")
            save()
    except KeyboardInterrupt:
        # Ours, or a reporter's that was asked to stop: the state is that of the last whole chunk.
        save()
        raise
    finally:
        reporter.stop()
    record = history.whole() if history.parts else Record(*(np.zeros(0),) * 4)
    sampler = trainer.sampler(trainer.learned(state), trainer.fixed)
    step_seconds = float(np.median(pace)) if pace else float("nan")
    return Fit(sampler, record, np.asarray(state.skipped), done, spent(), step_seconds)


def _check_streak(state: _State, max_nonfinite: int) -> None:
    streak = np.asarray(state.longest)
    if (streak < max_nonfinite).all():
        return
    level = int(np.argmax(streak.reshape(-1, streak.shape[-1]).max(axis=0))) + 1
    raise NonFiniteGradientError(
        f"The gradient of level {level} was not finite {int(streak.max())} times in a row (all were skipped). "
        "Check the log density there for NaN or infinite derivatives, lower the learning rate, or use more levels."
    )


def _report(reporter, done: int, part: Record, num_particles: int, steps_per_second: float) -> None:
    reporter.update(
        done,
        log_Z_hat=float(np.mean(part.log_Z_hat)),
        ess_percent=float(100 * np.mean(part.ess) / num_particles),
        steps_per_second=steps_per_second,
    )
