"""A user's function as what it computes: arrays that it closes over become leaves, the rest a
program that is equal by content.

What is compiled for a traced function serves every other with the same program: the same model
called again, also with other data of the same shapes. A function that changed, in its code, its
closure or the globals that it reads, is another program or has other leaves, and is never mistaken
for the old one.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jaxtyping import PyTree

__all__ = ["Traced", "constants_apart", "trace"]


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
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)
        ):
            if isinstance(value, ClosedJaxpr):
                yield from value.consts
                yield from _held(value.jaxpr)
            elif isinstance(value, Jaxpr):
                yield from _held(value)
            elif isinstance(value, np.ndarray | jax.Array):
                yield value


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
