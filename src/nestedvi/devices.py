"""Where work goes when there is more than one device: meshes, what is laid out along which of their
axes, and the way back to one device.

    axis        what is laid out along it                      what is exchanged
    batches     independent runs, values, moves of `sample`    nothing
    restarts    independent trainings of `fit(restarts=…)`     nothing
    instances   the batch of `fit_amortised`                   gradients, which are summed
    particles   one population                                 weights, resampled particles, sums
    levels      level-parallel training                        particles, one level up a step

Keys are made before anything is laid out, so that no random number depends on the devices. Batches,
instances and levels are laid out by `jax.shard_map`. Particles are laid out by the compiler, from
the constraints `over_particles` and `everywhere`, which read the mesh that JAX has in its context.
It refuses to know samplers and learners.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from nestedvi.compilation import uncompiled
from nestedvi.errors import UnknownNameError

__all__ = [
    "AXES",
    "Devices",
    "as_mesh",
    "check_divides",
    "everywhere",
    "gather",
    "mesh",
    "num_along",
    "over_particles",
    "put",
    "size_of",
    "spread",
    "to_host",
    "under",
]

AXES = ("batches", "restarts", "instances", "particles", "levels")

Devices: TypeAlias = "int | Sequence[jax.Device] | Mesh | None"
"""What `devices=` takes: how many, which ones, or a mesh; None is the function's default."""

T = TypeVar("T")
_WHOLE = PartitionSpec()


def mesh(devices: Sequence[jax.Device] | None = None, **sizes: int) -> Mesh:
    """A mesh with named axes, of the first devices that there are or of those given.

    ```python
    nvi.devices.mesh(restarts=2, levels=4)
    ```
    """
    for name in sizes:
        if name not in AXES:
            raise UnknownNameError("axis of devices", name, AXES)
    if not sizes or min(sizes.values()) < 1:
        raise ValueError(f"A mesh needs one axis or more, of one device or more; got {sizes}.")
    num, there = int(np.prod(list(sizes.values()))), list(devices or jax.devices())
    if num > len(there):
        raise ValueError(
            f"{num} devices were asked for ({sizes}); there are {len(there)}. On a CPU,"
            f" XLA_FLAGS=--xla_force_host_platform_device_count={num} makes virtual ones."
        )
    return jax.make_mesh(
        tuple(sizes.values()),
        tuple(sizes),
        axis_types=(AxisType.Auto,) * len(sizes),
        devices=there[:num],
    )


def as_mesh(devices: Devices, axis: str, allowed: Sequence[str] = ()) -> Mesh | None:
    """What a user passed as `devices`: None is no mesh; a number or a list of devices is a mesh
    along `axis`; a mesh may have that axis and those `allowed`.
    """
    if devices is None or (isinstance(devices, int) and devices == 1):
        return None
    if isinstance(devices, Mesh):
        for name in devices.axis_names:
            if name not in (axis, *allowed):
                raise UnknownNameError("axis of devices here", str(name), (axis, *allowed))
        # The functions of this module leave the layout of particles to the compiler.
        return Mesh(devices.devices, devices.axis_names, (AxisType.Auto,) * devices.devices.ndim)
    if isinstance(devices, int):
        return mesh(None, **{axis: devices})
    chosen = list(devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise TypeError(
            "devices is a number, a list of JAX devices, or a mesh (nvi.devices.mesh); got"
            f" {devices!r}."
        )
    return mesh(chosen, **{axis: len(chosen)})


def size_of(devices: Mesh | None, axis: str) -> int:
    """The number of devices along an axis; one where there is no such axis."""
    return 1 if devices is None else int(devices.shape.get(axis, 1))


def check_divides(num: int, what: str, devices: Mesh | None, axis: str) -> None:
    """Raises unless the devices along `axis` get equally many of `num`."""
    parts = size_of(devices, axis)
    if num % parts:
        below, above = num - num % parts, num + parts - num % parts
        near = f"{below} or {above}" if below else str(above)
        raise ValueError(
            f"{what} = {num} does not divide by {parts} devices along {axis!r}. Use {near}, or"
            " another number of devices."
        )


def under(devices: Mesh | None) -> AbstractContextManager[Any]:
    """The context in which programs see the mesh."""
    return nullcontext() if devices is None else jax.set_mesh(devices)


def num_along(axis: str) -> int:
    """The number of devices along an axis of the mesh in whose context this is traced."""
    return int(dict(jax.sharding.get_abstract_mesh().shape).get(axis, 1))


def over_particles(tree: T) -> T:
    """Arrays with a leading particle axis, laid out over the devices along `particles`. Without
    such an axis nothing happens.
    """
    return _constrain(tree, PartitionSpec("particles"))


def everywhere(tree: T) -> T:
    """Arrays with a leading particle axis, whole on every device: what is computed from them is
    computed as on one device, to the last bit.
    """
    return _constrain(tree, _WHOLE)


def _constrain(tree: T, spec: PartitionSpec) -> T:
    parts = num_along("particles")
    if parts == 1:
        return tree

    def one(x: Any) -> Any:
        # A number that does not divide (the S-1 chains of an upper bound) is left to the compiler.
        if not eqx.is_array(x) or x.shape[0] % parts:
            return x
        return jax.lax.with_sharding_constraint(x, spec)

    return jax.tree.map(one, tree)


def put(tree: T, devices: Mesh, specs: PyTree = _WHOLE) -> T:
    """Arrays laid out over the mesh, whole on every device unless `specs` (a tree or one for all)
    say otherwise. In several processes every one holds the same arrays before.
    """

    def one(x: Any, spec: PartitionSpec) -> Any:
        if not eqx.is_array(x):
            return x
        sharding = NamedSharding(devices, spec)
        if isinstance(x, jax.Array) and x.sharding == sharding:
            return x
        if sharding.is_fully_addressable:
            return jax.device_put(x, sharding)
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            impl = jax.random.key_impl(x)
            return jax.random.wrap_key_data(one(jax.random.key_data(x), spec), impl=impl)
        whole = np.asarray(x)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    if isinstance(specs, PartitionSpec):
        return jax.tree.map(lambda x: one(x, specs), tree)
    return jax.tree.map(one, tree, specs)


def to_host(tree: PyTree) -> Any:
    """The whole of every array, as NumPy's, in every process."""

    def one(x: Any) -> Any:
        if isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated):
            assert isinstance(x.sharding, NamedSharding)
            x = jax.jit(lambda y: y, out_shardings=NamedSharding(x.sharding.mesh, _WHOLE))(x)
        return np.asarray(x)

    return jax.tree.map(one, tree)


def gather(tree: T) -> T:
    """Arrays from several devices, each on one device: the first that held a part of it, or in
    several processes every process's own.
    """

    def one(x: Any) -> Any:
        if not isinstance(x, jax.Array) or len(x.sharding.device_set) == 1:
            return x
        if not x.is_fully_addressable:
            return jnp.asarray(to_host(x))
        return jax.device_put(x, _first(x.sharding.device_set))

    return jax.tree.map(one, tree)


def _first(devices: Any) -> jax.Device:
    return min(devices, key=lambda device: device.id)


def spread(
    fn: Callable[..., PyTree], devices: Mesh, axis: str, items: PyTree, shared: PyTree, *static: Any
) -> PyTree:
    """`fn(items, shared, *static)`, a map over the leading axis of `items`, with every device along
    `axis` doing its share of them: nothing is exchanged. The result is on one device.

    A number of items that does not divide is filled up with the first one, whose additional results
    are dropped. `fn` is a function of a module, so that the same program is found again.
    """
    num = jax.tree.leaves(items)[0].shape[0]
    rows = np.arange(-(-num // size_of(devices, axis)) * size_of(devices, axis))
    rows = np.where(rows < num, rows, 0)
    items = jax.tree.map(lambda x: x[rows] if len(rows) > num else x, items)
    spec = PartitionSpec(axis) if axis in devices.axis_names else _WHOLE
    with under(devices):
        out = _spread(uncompiled(fn), axis, put(items, devices, spec), put(shared, devices), static)
    return jax.tree.map(lambda x: x[:num] if len(rows) > num else x, gather(out))


@eqx.filter_jit
def _spread(fn: Any, axis: str, items: PyTree, shared: PyTree, static: tuple[Any, ...]) -> PyTree:
    if num_along(axis) == 1:
        return fn(items, shared, *static)
    arrays, rest = eqx.partition(shared, eqx.is_array)
    return jax.shard_map(
        lambda items, arrays: fn(items, eqx.combine(arrays, rest), *static),
        in_specs=(PartitionSpec(axis), _WHOLE),
        out_specs=PartitionSpec(axis),
        axis_names={axis},
        # Rejection samplers (gamma, beta) do not pass the check.
        check_vma=False,
    )(items, arrays)
