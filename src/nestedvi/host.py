"""Small work on the host's processor: where a call of an accelerator takes longer than its work,
and in one thread where threads would wait for each other longer than they work.

A loop on the host that asks for a few gradients at a time waits for an accelerator at every round:
some milliseconds, however little there is to compute. It refuses to know what is computed.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from threadpoolctl import threadpool_limits

__all__ = [
    "arrays_on_host",
    "default_device",
    "is_on_host",
    "logsumexp",
    "num_operations",
    "on_host",
    "one_thread",
    "softmax",
]

T = TypeVar("T")
# A core does some 10⁹ operations a second, and an accelerator answers after some milliseconds.
_SMALL = 5e6
# Of products of matrices a core does so many at once.
_AT_ONCE = 8
# Products and roots of matrices up to this size are faster in one thread.
_SMALL_MATRIX = 200


def _count(jaxpr: Jaxpr) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [
            x.jaxpr if isinstance(x, ClosedJaxpr) else x
            for x in jax.tree.leaves(
                list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)
            )
            if isinstance(x, ClosedJaxpr | Jaxpr)
        ]
        if inner:
            total += equation.params.get("length", 1) * sum(_count(x) for x in inner)
            continue
        size = sum(math.prod(_shape(x)) for x in equation.outvars)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            size *= math.prod(_shape(equation.invars[0])[i] for i in contracted) / _AT_ONCE
        total += size
    return total


def _shape(atom: Any) -> tuple[int, ...]:
    return tuple(getattr(atom.aval, "shape", ()))


def num_operations(fn: Callable[..., Any], *like: Any) -> float:
    """Roughly how many operations on numbers a function takes: every result counts one for each of
    its elements, a product of matrices one for every eight numbers that are multiplied, and a loop
    as often as it runs, where that is known.
    """
    leaves, structure = jax.tree.flatten(like)
    shapes = [
        jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, jax.Array | np.ndarray) else x
        for x in leaves
    ]
    return _of_shapes(fn, structure, tuple(shapes))


@lru_cache(maxsize=64)
def _of_shapes(fn: Callable[..., Any], structure: Any, leaves: Any) -> float:
    """Tracing takes as long as many calls, and is done once."""
    like = jax.tree.unflatten(structure, leaves)
    return _count(eqx.filter_make_jaxpr(fn)(*like)[0].jaxpr)


@contextmanager
def on_host(tree: T, ask: Callable[[T, Any], Any], like: Any, times: int) -> Iterator[T]:
    """The tree, and what is computed from it inside of this, on the host's processor if `times`
    calls of `ask(tree, like)` take few operations; else as it is. They are counted only where there
    is a choice.
    """
    if is_on_host() or times * num_operations(ask, tree, like) > _SMALL:
        yield tree
        return
    cpu = jax.local_devices(backend="cpu")[0]
    with jax.default_device(cpu):
        yield jax.tree.map(lambda x: jax.device_put(x, cpu) if eqx.is_array(x) else x, tree)


def arrays_on_host() -> AbstractContextManager[Any]:
    """Arrays of JAX that are made inside of this are in the host's memory: those that the host
    reads, which would wait for an accelerator. Programs take them to where the others are.
    """
    if is_on_host():
        return nullcontext()
    return jax.default_device(jax.local_devices(backend="cpu")[0])


def logsumexp(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """log Σ exp x along an axis that may be short: NumPy is many times faster along the first."""
    rows = np.ascontiguousarray(np.moveaxis(np.asarray(x, np.float64), axis, 0))
    top = rows.max(axis=0)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(rows - top).sum(axis=0)) + top


def softmax(x: np.ndarray) -> np.ndarray:
    """exp x over its sum along the last axis, which may be short; likewise."""
    rows = np.ascontiguousarray(np.moveaxis(np.asarray(x, np.float64), -1, 0))
    rows = np.exp(rows - rows.max(axis=0))
    return np.moveaxis(rows / rows.sum(axis=0), 0, -1)


def is_on_host() -> bool:
    """Whether programs are compiled for the host's processor here."""
    device = default_device()
    if device is None:
        return jax.default_backend() == "cpu"
    return device.platform == "cpu"


def default_device() -> Any:
    """The device that is asked for here; None where none is. JAX also takes a platform's name."""
    device = getattr(jax.config, "jax_default_device")  # noqa: B009
    return jax.local_devices(backend=device)[0] if isinstance(device, str) else device


def one_thread(dim: int) -> AbstractContextManager[Any]:
    """One thread for NumPy's and SciPy's linear algebra while matrices are small. JAX keeps its own
    threads.
    """
    small = dim <= _SMALL_MATRIX
    return threadpool_limits(1, user_api="blas") if small else nullcontext()
