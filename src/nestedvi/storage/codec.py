"""Results of the library as arrays and JSON, and back, bit for bit. No code is stored: a class is a
name in this package, and what cannot be written down (a user's function) is a reference to
something that the reader has too.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["decode", "encode"]

_PACKAGE = "nestedvi."
_PLAIN = (bool, int, float, str)


def encode(tree: Any, known: Mapping[str, Any]) -> tuple[Any, list[np.ndarray]]:
    """JSON and the arrays that it refers to. `known` are objects by name that are not stored."""
    writer = _Writer(known)
    return writer.write(tree), writer.arrays


def decode(spec: Any, arrays: list[np.ndarray], known: Mapping[str, Any]) -> Any:
    """What `encode` was given; `known` holds the same objects."""
    return _Reader(arrays, known).read(spec)


class _Writer:
    def __init__(self, known: Mapping[str, Any]):
        self._names = {id(x): name for name, x in known.items()}
        self.arrays: list[np.ndarray] = []

    def write(self, x: Any) -> Any:
        if id(x) in self._names:
            return {"known": self._names[id(x)]}
        if x is None or type(x) in _PLAIN:
            return {"value": x}
        if isinstance(x, np.ndarray | np.generic | jax.Array):
            return self._array(x)
        if isinstance(x, Mapping):
            pairs = [[self.write(key), self.write(value)] for key, value in x.items()]
            return {"mapping": pairs, "fixed": isinstance(x, MappingProxyType)}
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return {"named": _name_of(type(x)), "items": [self.write(item) for item in x]}
        if type(x) in (tuple, list):
            return {type(x).__name__: [self.write(item) for item in x]}
        if isinstance(x, eqx.Module):
            # A field may be unset: one with a default that its class computes.
            fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
            content = {name: self.write(value) for name, value in fields.items()}
            return {"module": _name_of(type(x)), "fields": content}
        raise TypeError(f"{type(x).__name__} cannot be stored as arrays and JSON.")

    def _array(self, x: Any) -> dict[str, Any]:
        spec: dict[str, Any] = {"array": len(self.arrays), "kind": "numpy"}
        if isinstance(x, jax.Array):
            spec["kind"] = "jax"
            if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
                spec["impl"] = str(jax.random.key_impl(x))
                x = jax.random.key_data(x)
        elif isinstance(x, np.generic):
            spec["kind"] = "scalar"
        array = np.asarray(x)
        # In the order of its entries that it has: sums depend on it, in their last bits.
        turned = array.flags.f_contiguous and not array.flags.c_contiguous
        array = np.array(array, order="F" if turned else "C")
        if array.dtype.kind in "OV" and array.dtype.name not in np.sctypeDict:
            # A type of JAX's own, such as bfloat16: its bytes.
            spec |= {"dtype": array.dtype.name, "shape": list(array.shape)}
            array = np.frombuffer(array.tobytes(), np.uint8)
        if array.dtype.hasobject:
            raise TypeError("An array of objects cannot be stored as arrays and JSON.")
        self.arrays.append(array)
        return spec


class _Reader:
    def __init__(self, arrays: list[np.ndarray], known: Mapping[str, Any]):
        self._arrays, self._known = arrays, known

    def read(self, spec: dict[str, Any]) -> Any:
        if "known" in spec:
            return self._known[spec["known"]]
        if "value" in spec:
            return spec["value"]
        if "array" in spec:
            return self._array(spec)
        if "mapping" in spec:
            pairs = {self.read(key): self.read(value) for key, value in spec["mapping"]}
            return MappingProxyType(pairs) if spec["fixed"] else pairs
        if "named" in spec:
            return _class(spec["named"], tuple)(*map(self.read, spec["items"]))
        if "tuple" in spec:
            return tuple(map(self.read, spec["tuple"]))
        if "list" in spec:
            return list(map(self.read, spec["list"]))
        module = object.__new__(_class(spec["module"], eqx.Module))
        for name, value in spec["fields"].items():
            object.__setattr__(module, name, self.read(value))
        return module

    def _array(self, spec: dict[str, Any]) -> Any:
        array = self._arrays[spec["array"]]
        if "dtype" in spec:
            array = np.frombuffer(array.tobytes(), jnp.dtype(spec["dtype"])).reshape(spec["shape"])
        if "impl" in spec:
            return jax.random.wrap_key_data(jnp.asarray(array), impl=spec["impl"])
        if spec["kind"] == "jax":
            return jnp.asarray(array)
        return array[()] if spec["kind"] == "scalar" else array


def _name_of(cls: type) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    if not name.startswith(_PACKAGE):
        raise TypeError(f"{name} is no class of this package and cannot be stored.")
    return name


def _class(name: str, base: type) -> Any:
    """A class by its name: of this package, and of the kind that is expected."""
    module, _, path = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise ValueError(f"{name} is no class of this package.")
    item: Any = importlib.import_module(module)
    for part in path.split("."):
        item = getattr(item, part)
    if not (isinstance(item, type) and issubclass(item, base)):
        raise ValueError(f"{name} is no {base.__name__}.")
    return item
