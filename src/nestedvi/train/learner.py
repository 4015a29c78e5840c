"""What the training loop trains: parameters, a gradient, and how to tell this training from
another.

A learner gives the gradient of one step as a pure function; the state, the guarded update, the
average of the parameters and the compiled chunk of steps are the same for all of them. It refuses
to know about files, clocks and terminals: that is the loop's.
"""

import abc
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PyTree

from nestedvi._types import Key
from nestedvi.arguments import check_kind
from nestedvi.devices import num_along, on, put
from nestedvi.train.fingerprint import describe_arrays, digest_arrays, probe_optimiser
from nestedvi.train.placement import NO_LEVELS, Placement, level_axes_of_optimiser, no_levels

__all__ = ["CHUNK", "AbstractLearner", "Gradient", "State", "as_optimiser"]

CHUNK = 512


def as_optimiser(
    optimiser: optax.GradientTransformation | None,
) -> optax.GradientTransformation:
    """The optimiser that was given, or Adam."""
    if optimiser is None:
        return optax.adam(1e-3)
    check_kind(
        "optimiser", optimiser, optax.GradientTransformation, "one of optax, optax.adam(1e-3) say"
    )
    return optimiser


class Gradient(NamedTuple):
    """One step's gradient shaped like the parameters, whether each level's was finite, what the
    step reports, and what it hands on to the next step."""

    grads: PyTree
    finite: Bool[Array, " levels"]
    info: Any
    carry: Any


class Average(NamedTuple):
    """An exponential moving average: Σ d^age p and Σ d^age, whose ratio is free of the start's
    weight.
    """

    total: PyTree
    mass: Float[Array, ""]

    def update(self, params: PyTree, decay: float) -> "Average":
        total = jax.tree.map(lambda t, p: decay * t + (1 - decay) * p, self.total, params)
        return Average(total, decay * self.mass + (1 - decay))

    def params(self) -> PyTree:
        return jax.tree.map(lambda t: t / self.mass.astype(t.dtype), self.total)


class State(NamedTuple):
    """What the next step needs; `longest` is the longest streak of non-finite gradients in the
    present chunk.
    """

    params: PyTree
    opt_state: PyTree
    carry: PyTree
    skipped: Int[Array, " levels"]
    streak: Int[Array, " levels"]
    longest: Int[Array, " levels"]
    average: Average | None


class AbstractLearner(abc.ABC):
    """One compiled training step and its state, for one set of parameters or for several restarts
    under vmap.

    `params` are optimised and `fixed` are not; with `restarts` every array of both has a leading
    axis of that size. `shared` are arrays that all restarts see (a data set on the device).
    `num_levels` is the number of parts whose finiteness is told apart. `placement` says where all
    of this lies when there are several devices.
    """

    params: PyTree
    fixed: PyTree
    static: PyTree
    shared: PyTree = None
    optimiser: optax.GradientTransformation
    restarts: int | None = None
    average: float | None = None
    num_levels: int
    placement: Placement | None = None
    what: ClassVar[str] = "level"

    @abc.abstractmethod
    def gradient(
        self, key: Key, params: PyTree, fixed: PyTree, shared: PyTree, carry: Any
    ) -> Gradient:
        """One step's gradient, for one restart; pure."""

    @abc.abstractmethod
    def initial_carry(self, key: Key, params: PyTree, fixed: PyTree, shared: PyTree) -> Any:
        """What the first step is handed, for one restart."""

    @abc.abstractmethod
    def identity(self, state: State) -> dict[str, Any]:
        """What must agree for a checkpoint to be continued, beyond what every learner has; JSON."""

    @abc.abstractmethod
    def measures(self, record: Any) -> dict[str, float]:
        """What a progress display shows of some steps' records (leading axis steps, then
        restarts).
        """

    def adopt(self, module: PyTree, trainable: PyTree) -> None:
        """Takes a module apart into `params` (where `trainable` says so), the `fixed` arrays and
        the `static` rest.
        """

        # Weakly typed arrays would turn strong after the first update, and the step would be
        # compiled twice.
        def strong(x):
            return jax.lax.convert_element_type(x, x.dtype) if eqx.is_inexact_array(x) else x

        self.params, rest = eqx.partition(jax.tree.map(strong, module), trainable)
        self.fixed, self.static = eqx.partition(rest, eqx.is_array)
        self.chunk = jax.jit(self._chunk)

    @property
    def inputs(self) -> tuple[PyTree, PyTree]:
        """The arrays that training reads and does not change."""
        return self.fixed, self.shared

    def start(self, key: Key) -> State:
        """The state before the first step."""

        def one(key, params, fixed, shared):
            carry = self.initial_carry(jax.random.fold_in(key, 0), params, fixed, shared)
            zeros = jnp.zeros(self.num_levels, jnp.int32)
            average = None
            if self.average is not None:
                average = Average(jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))
            return State(params, self.optimiser.init(params), carry, zeros, zeros, zeros, average)

        # Copies: the caller's arrays must outlive training.
        return jax.jit(self._over_restarts(one, (0, 0, 0, None)))(
            self._keys(key), self.params, *self.inputs
        )

    def level_axes(self, module: PyTree) -> PyTree:
        """Of every array the axis that has a row for each of levels 2 … K, or `NO_LEVELS`; `module`
        is shaped like `params` or `fixed`.
        """
        return no_levels(module)

    def carry_level_axes(self, carry: PyTree) -> PyTree:
        """The same for what one step hands on to the next."""
        return no_levels(carry)

    def _state_level_axes(self, state: State) -> State:
        params = self.level_axes(state.params)
        init = self._over_restarts(self.optimiser.init, 0)
        return no_levels(state)._replace(
            params=params,
            opt_state=level_axes_of_optimiser(init, state.params, params),
            carry=self.carry_level_axes(state.carry),
            average=None
            if state.average is None
            else state.average._replace(
                total=params,
                mass=NO_LEVELS,  # type: ignore[arg-type]
            ),
        )

    def place(self, key: Key, state: State) -> tuple[State, tuple[PyTree, PyTree], Key]:
        """The state, the inputs and the key of `chunk` where they belong."""
        if self.placement is None:
            return state, self.inputs, key
        self._axes = self._state_level_axes(state)
        fixed = self.placement.place(self.fixed, self.level_axes(self.fixed))
        shared = self.placement.place(self.shared, no_levels(self.shared), shared=True)
        there = put(key, self.placement.mesh)
        return self.placement.place(state, self._axes), (fixed, shared), there

    def whole(self, state: State) -> State:
        """The state as it is on one device."""
        return state if self.placement is None else self.placement.whole(state, self._axes)

    def on_devices(self) -> AbstractContextManager[Any]:
        """The context in which `chunk` runs."""
        return on(None if self.placement is None else self.placement.mesh)

    def learned(self, state: State) -> PyTree:
        """The parameters that training returns: the last ones, or their average."""
        return (
            state.params
            if state.average is None
            else self._over_restarts(lambda a: a.params(), 0)(state.average)
        )

    def fingerprint(self, key: Key, state: State) -> dict[str, Any]:
        """What must agree for a checkpoint to be continued."""
        probe = self._over_restarts(
            lambda params, opt_state: probe_optimiser(self.optimiser, params, opt_state), 0
        )
        return {
            "key": np.asarray(jax.random.key_data(key)).tolist(),
            "restarts": self.restarts,
            "average": self.average,
            "optimiser": {
                "state": describe_arrays(state.opt_state),
                "probe": [
                    f"{x:.5g}" for x in np.ravel(jax.jit(probe)(state.params, state.opt_state))
                ],
            },
            "parameters": describe_arrays(state.params),
            "start": digest_arrays(self.params),
            "fixed": digest_arrays(self.inputs),
            **self.identity(state),
        }

    def _keys(self, key: Key) -> Key:
        return key if self.restarts is None else jax.random.split(key, self.restarts)

    def _over_restarts(self, fn, in_axes):
        return fn if self.restarts is None else jax.vmap(fn, in_axes=in_axes)

    def _step(self, key: Key, state: State, fixed: PyTree, shared: PyTree) -> tuple[State, Any]:
        result = self.gradient(key, state.params, fixed, shared, state.carry)
        good = jnp.all(result.finite)
        updates, opt_state = self.optimiser.update(result.grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)

        # A non-finite gradient touches neither the parameters nor the optimiser's memory.
        def keep(new, old):
            return jnp.where(good, new, old)

        bad = jnp.logical_not(result.finite).astype(jnp.int32)
        streak = (state.streak + bad) * bad
        params = jax.tree.map(keep, params, state.params)
        average = state.average
        if average is not None and self.average is not None:
            average = average.update(params, self.average)
        new = State(
            params,
            jax.tree.map(keep, opt_state, state.opt_state),
            result.carry,
            state.skipped + bad,
            streak,
            jnp.maximum(state.longest, streak),
            average,
        )
        return self._stay(new), result.info

    def _stay(self, state: State) -> State:
        """Within a step of one restart: the rows of levels stay on their devices."""
        if num_along("levels") == 1:
            return state
        skipped = int(self.restarts is not None)

        def stay(x, axis):
            if axis == NO_LEVELS:
                return x
            spec = [None] * (axis - skipped) + ["levels"]
            rest = [PartitionSpec.UNCONSTRAINED] * (x.ndim - len(spec))
            return jax.lax.with_sharding_constraint(x, PartitionSpec(*spec, *rest))

        return jax.tree.map(stay, state, self._axes)

    def _chunk(
        self, key: Key, state: State, inputs: tuple[PyTree, PyTree], start: Any, count: Any
    ) -> tuple[State, Any]:
        """`count` ≤ `CHUNK` steps from step `start`; the count is an array so that one compilation
        serves all.
        """
        steps, keys = self._steps, self._keys(key)
        if num_along("restarts") > 1:
            # Restarts know nothing of each other: every device runs its own.
            own, same = PartitionSpec("restarts"), PartitionSpec()
            steps = jax.shard_map(
                steps,
                in_specs=(own, own, (own, same), same, same),
                out_specs=(own, PartitionSpec(None, "restarts")),
                axis_names={"restarts"},
                # Rejection samplers (gamma, beta) do not pass the check.
                check_vma=False,
            )
        return steps(keys, state, inputs, jnp.asarray(start), jnp.asarray(count))

    def _steps(
        self, keys: Key, state: State, inputs: tuple[PyTree, PyTree], start: Any, count: Any
    ) -> tuple[State, Any]:
        advance = self._over_restarts(self._step, (0, 0, 0, None))

        def step(i, carry):
            state, records = carry
            here = self._over_restarts(lambda k: jax.random.fold_in(k, i + 1), 0)(keys)
            state, info = advance(here, state, *inputs)
            return state, jax.tree.map(lambda all_, x: all_.at[i - start].set(x), records, info)

        shapes = jax.eval_shape(advance, keys, state, *inputs)[1]
        records = jax.tree.map(lambda s: jnp.zeros((CHUNK, *s.shape), s.dtype), shapes)
        # A streak may end before its chunk does.
        return jax.lax.fori_loop(
            start, start + count, step, (state._replace(longest=state.streak), records)
        )
