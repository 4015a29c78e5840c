"""A user's function as what it computes: arrays that it closes over become leaves, the rest a
program that is equal by content.

What is compiled for a traced function serves every other with the same program: the same model
called again, also with other data of the same shapes. A function that changed, in its code, its
closure or the globals that it reads, is another program or has other leaves, and is never mistaken
for the old one.

A program also shows indices out of range before it is compiled. JAX does not raise for them: it
takes another element, and log Z is that of another model. Indices that are data are known when a
program is traced. Those are computed, each with what it depends on and nothing else, and compared
with the size of the array. What depends on a particle is not looked at, nor are indices whose
overflow was asked for (`mode="clip"`, `mode="fill"`).
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.lax import GatherScatterMode
from jaxtyping import PyTree

from nestedvi.errors import ModelError

__all__ = ["Traced", "check_indices", "constants_apart", "trace"]

Value = Callable[[], Any]
# A scan's steps are looked at one by one: enough of them to see what is wrong, at little cost.
_MOST_STEPS = 1000
# What negative indices go through; nothing is compiled for it.
_IN_NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "lt": np.less,
    "add": np.add,
    "select_n": lambda which, *cases: np.choose(which.astype(int), cases),
}


class _Program:
    """A jaxpr and the structure of its result; equal to another that computes the same from its
    constants and arguments.
    """

    def __init__(self, closed: ClosedJaxpr, structure: Any):
        self.jaxpr, self.structure = closed.jaxpr, structure
        # Text names every operation, but not the values that programs inside of this one hold.
        self._key = (
            str(closed.jaxpr),
            structure,
            tuple(_fingerprint(x) for x in _held(closed.jaxpr)),
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Program) and self._key == other._key


def _held(jaxpr: Jaxpr) -> Iterator[Any]:
    """Arrays inside of a program's operations, at any depth."""
    for equation in jaxpr.eqns:
        for value in _parameters(equation):
            if isinstance(value, ClosedJaxpr):
                yield from value.consts
            if isinstance(value, ClosedJaxpr | Jaxpr):
                yield from _held(_plain(value))
            elif isinstance(value, np.ndarray | jax.Array):
                yield value


def _parameters(equation: Any) -> list[Any]:
    """What an operation is given beside its inputs; programs inside of it are whole."""
    return jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)
    )


def _plain(jaxpr: Jaxpr | ClosedJaxpr) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def _fingerprint(x: Any) -> tuple[Any, ...]:
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    x = np.asarray(x)
    return x.shape, str(x.dtype), x.tobytes()


class Traced(eqx.Module):
    """A function that was traced: call it as the original, without the arguments that it holds."""

    constants: tuple[Any, ...]
    held: tuple[jax.Array, ...]
    program: _Program = eqx.field(static=True)

    @property
    def closed(self) -> ClosedJaxpr:
        """The program with its constants; its first inputs are the numbers that are held."""
        return ClosedJaxpr(self.program.jaxpr, self.constants)

    @property
    def digests(self) -> tuple[str, str]:
        """Of the program and of the arrays in it: the same in every process."""
        arrays = hashlib.sha256()
        for x in (*self.constants, *self.held, *_held(self.program.jaxpr)):
            arrays.update(repr(_fingerprint(x)).encode())
        # Functions that are named in a program have an address, which says nothing.
        text = re.sub(" at 0x[0-9a-f]+", "", str(self.program.jaxpr))
        return hashlib.sha256(text.encode()).hexdigest(), arrays.hexdigest()

    def __call__(self, *args: PyTree) -> PyTree:
        run = jaxpr_as_fun(self.closed)
        return jax.tree.unflatten(self.program.structure, run(*self.held, *jax.tree.leaves(args)))


@contextmanager
def constants_apart() -> Iterator[None]:
    """Newer versions of JAX write arrays that a function closes over into its program, and remember
    them in the precision that they were first seen in: here they are to be leaves.
    """
    name = "jax_use_simplified_jaxpr_constants"
    before = getattr(jax.config, name, False)
    if before:
        jax.config.update(name, False)
    try:
        yield
    finally:
        if before:
            jax.config.update(name, before)


def trace(fn: Callable[..., PyTree], *like: PyTree, hold: tuple[Any, ...] = ()) -> Traced:
    """`fn` for arguments shaped as those given; they are not evaluated.

    Numbers to `hold` are its first argument, as a tuple: JAX writes a scalar that a function closes
    over into the program, which another value of it would then not share.
    """
    # A type of its own: a Python number's would give way to others, and be another program.
    held = tuple(jnp.asarray(x, jnp.asarray(x).dtype) for x in hold)
    # A new function each time: JAX keeps the trace of one that it has seen, though what it closes
    # over may have changed.
    with constants_apart():
        closed, shape = jax.make_jaxpr(
            lambda held, *args: fn(held, *args) if hold else fn(*args), return_shape=True
        )(held, *like)
    # Copies of what its owner could change later, in the precision that the program asks for: an
    # array of NumPy may have been seen in another before.
    constants = tuple(
        x if isinstance(x, jax.Array) else jnp.array(np.asarray(x), var.aval.dtype, copy=True)
        for x, var in zip(closed.consts, closed.jaxpr.constvars, strict=True)
    )
    return Traced(constants, held, _Program(closed, jax.tree.structure(shape)))


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
        results = outputs if equation.primitive.multiple_results else [outputs]
        self.known |= {var: _just(x) for var, x in zip(equation.outvars, results, strict=True)}


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
        for axis, index in _lookups(scope, equation):
            _compare(index, axis, equation, name, sites)
        for inner in _inner(scope, equation):
            _check(inner, name, sites)


def _lookups(scope: _Scope, equation: Any) -> list[tuple[int, np.ndarray]]:
    """Axes that an operation looks something up along, with the indices; none where these are not
    known.
    """
    kind, params = equation.primitive.name, equation.params
    try:
        if kind == "gather" and params["mode"] == GatherScatterMode.PROMISE_IN_BOUNDS:
            axes = params["dimension_numbers"].start_index_map
            indices = np.moveaxis(np.asarray(scope.value(equation.invars[1])), -1, 0)
            return list(zip(axes, indices, strict=True))
        if kind == "dynamic_slice":
            return [(i, np.asarray(scope.value(x))) for i, x in enumerate(equation.invars[1:])]
    except _UnknownError:
        pass
    return []


def _compare(
    index: np.ndarray, axis: int, equation: Any, name: str, sites: Mapping[str, tuple[int, ...]]
) -> None:
    shape, size = equation.invars[0].aval.shape, equation.params["slice_sizes"][axis]
    bad = (index < 0) | (index > shape[axis] - size)
    if not bad.any():
        return
    worst = int(index[bad].flat[0])
    # JAX has counted negative indices from the end already.
    given = worst - shape[axis] if worst < 0 else worst
    alike = [repr(site) for site, other in sites.items() if other == shape]
    as_site = f" (as {' or '.join(alike)} is)" if alike else ""
    raise ModelError(
        f"The {name} has an index out of range: {given} into an array of shape {shape}{as_site},"
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
    say.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # From JAX 0.11 on: a tree for each of constants, carry and rows, whose length is its leaves'.
    trees = getattr(params.get("ft_in"), "elts", None)
    if trees is None or len(trees) != 3:
        return None
    return len(trees[0]), len(trees[1])


def _operations(jaxpr: Jaxpr) -> set[str]:
    names = set()
    for equation in jaxpr.eqns:
        names.add(equation.primitive.name)
        for value in _parameters(equation):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                names |= _operations(_plain(value))
    return names
