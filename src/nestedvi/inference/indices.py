"""Indices out of range, found in a traced program before it is compiled.

JAX does not raise for them: it takes another element, and log Z is that of another model. Indices
that are data are known when a program is traced. Those are computed, each with what it depends on
and nothing else, and compared with the size of the array. What depends on a particle is not looked
at, nor are indices whose overflow was asked for (`mode="clip"`, `mode="fill"`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.lax import GatherScatterMode

from nestedvi.errors import ModelError

__all__ = ["check_indices"]

Value = Callable[[], Any]
# A scan's steps are looked at one by one: enough of them to see what is wrong, at little cost.
_MOST_STEPS = 1000


# What negative indices go through; nothing is compiled for it.
_IN_NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "lt": np.less,
    "add": np.add,
    "select_n": lambda which, *cases: np.choose(which.astype(int), cases),
}


class _UnknownError(Exception):
    """The value depends on a particle."""


def _unknown() -> Any:
    raise _UnknownError


def _just(value: Any) -> Value:
    return lambda: value


class _Scope:
    """The values of one program, each computed when it is asked for."""

    def __init__(self, jaxpr: Jaxpr, constants: Sequence[Value], inputs: Sequence[Value]):
        self.jaxpr = jaxpr
        self.known: dict[Any, Value] = dict(
            zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True)
        )
        self.made = {var: equation for equation in jaxpr.eqns for var in equation.outvars}

    def later(self, atom: Any) -> Value:
        return lambda: self.value(atom)

    def value(self, atom: Any) -> Any:
        if isinstance(atom, Literal):
            return atom.val
        if atom not in self.known:
            self._evaluate(self.made[atom])
        return self.known[atom]()

    def _evaluate(self, equation: Any) -> None:
        try:
            inputs = [self.value(atom) for atom in equation.invars]
        except _UnknownError:
            self.known |= dict.fromkeys(equation.outvars, _unknown)
            return
        if equation.primitive.name in _IN_NUMPY:
            outputs = _IN_NUMPY[equation.primitive.name](*map(np.asarray, inputs))
        else:
            # A constant of the program: it may be asked for while another one is traced.
            with jax.ensure_compile_time_eval():
                outputs = equation.primitive.bind(*inputs, **equation.params)
        found = outputs if equation.primitive.multiple_results else [outputs]
        self.known |= {var: _just(x) for var, x in zip(equation.outvars, found, strict=True)}


def check_indices(
    closed: ClosedJaxpr, name: str, sites: Mapping[str, tuple[int, ...]], held: Sequence[Any] = ()
) -> None:
    """Raises `ModelError` if an index that is data points outside of its array.

    `name` says what was traced, `sites` the shapes that it has names for, `held` its first inputs.
    """
    rest = len(closed.jaxpr.invars) - len(held)
    inputs = [*map(_just, held), *[_unknown] * rest]
    scope = _Scope(closed.jaxpr, [*map(_just, closed.consts)], inputs)
    _check(scope, name, sites)


def _check(scope: _Scope, name: str, sites: Mapping[str, tuple[int, ...]]) -> None:
    equations: Any = scope.jaxpr.eqns
    for equation in equations:
        kind, shape = equation.primitive.name, None
        if kind == "gather" and equation.params["mode"] == GatherScatterMode.PROMISE_IN_BOUNDS:
            axes = equation.params["dimension_numbers"].start_index_map
            read, shape = _gathered(scope, equation), equation.invars[0].aval.shape
        elif kind == "dynamic_slice":
            shape = equation.invars[0].aval.shape
            axes, read = tuple(range(len(shape))), _sliced(scope, equation)
        if shape is not None and read is not None:
            sizes = equation.params["slice_sizes"]
            for axis, index in zip(axes, read, strict=True):
                _compare(index, axis, shape, sizes[axis], equation, name, sites)
        for inner in _inner(scope, equation):
            _check(inner, name, sites)


def _gathered(scope: _Scope, equation: Any) -> list[np.ndarray] | None:
    """The indices of a gather along each axis that it looks up, None where they are not known."""
    try:
        indices = np.asarray(scope.value(equation.invars[1]))
    except _UnknownError:
        return None
    return list(np.moveaxis(indices, -1, 0))


def _sliced(scope: _Scope, equation: Any) -> list[np.ndarray] | None:
    try:
        return [np.asarray(scope.value(atom)) for atom in equation.invars[1:]]
    except _UnknownError:
        return None


def _compare(
    index: np.ndarray,
    axis: int,
    shape: tuple[int, ...],
    size: int,
    equation: Any,
    name: str,
    sites: Mapping[str, tuple[int, ...]],
) -> None:
    bad = (index < 0) | (index > shape[axis] - size)
    if not bad.any():
        return
    worst = int(index[bad].flat[0])
    # JAX has counted negative indices from the end already.
    said = worst - shape[axis] if worst < 0 else worst
    alike = [repr(site) for site, other in sites.items() if other == shape]
    as_site = f" (as {' or '.join(alike)} is)" if alike else ""
    raise ModelError(
        f"The {name} has an index out of range: {said} into an array of shape {shape}{as_site},"
        f" along axis {axis}, for {int(bad.sum())} of {index.size} indices{_line(equation)}. JAX"
        " would take another element without a word. Python counts from 0."
    )


def _line(equation: Any) -> str:
    """Where in the user's file it is, as far as JAX remembers."""
    try:
        frames = equation.source_info.traceback.frames
    except AttributeError:
        return ""
    for frame in frames:
        if not any(f"/{package}/" in frame.file_name for package in ("jax", "numpyro", "equinox")):
            return f", in {frame.function_name} at line {frame.line_num}"
    return ""


def _inner(scope: _Scope, equation: Any) -> list[_Scope]:
    """The programs inside of an operation, with what is known of their inputs."""
    params = equation.params
    inputs = [scope.later(atom) for atom in equation.invars]
    if equation.primitive.name == "scan":
        return _steps(scope, equation)
    if equation.primitive.name == "cond":
        return [_closed(branch, inputs[1:]) for branch in params["branches"]]
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if key in params and len(_plain(params[key]).invars) == len(inputs):
            return [_closed(params[key], inputs)]
    return []


def _plain(jaxpr: Jaxpr | ClosedJaxpr) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def _closed(jaxpr: Jaxpr | ClosedJaxpr, inputs: Sequence[Value]) -> _Scope:
    constants = jaxpr.consts if isinstance(jaxpr, ClosedJaxpr) else []
    return _Scope(_plain(jaxpr), [*map(_just, constants)], inputs)


def _steps(scope: _Scope, equation: Any) -> list[_Scope]:
    """One scope for each step of a scan that looks something up: constants and rows of the data are
    known there, what is carried is not.
    """
    params = equation.params
    body = _plain(params["jaxpr"])
    if not {"gather", "dynamic_slice"} & _operations(body):
        return []
    counts = _scan_counts(params)
    if counts is None:
        return []
    num_consts, num_carry = counts
    atoms = equation.invars
    constants = [scope.later(atom) for atom in atoms[:num_consts]]
    carried: list[Value] = [_unknown] * num_carry

    def row(atom: Any, step: int) -> Value:
        return lambda: scope.value(atom)[step]

    return [
        _closed(
            params["jaxpr"],
            [*constants, *carried, *(row(atom, t) for atom in atoms[num_consts + num_carry :])],
        )
        for t in range(min(params["length"], _MOST_STEPS))
    ]


def _scan_counts(params: Mapping[str, Any]) -> tuple[int, int] | None:
    """How many inputs of a scan are constants, and how many are carried; None where JAX does not
    say (from 0.11 on).
    """
    if "num_consts" not in params:
        return None
    return params["num_consts"], params["num_carry"]


def _operations(jaxpr: Jaxpr) -> set[str]:
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)
        ):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                found |= _operations(_plain(value))
    return found
