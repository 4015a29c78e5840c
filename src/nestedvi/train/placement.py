"""Where a learner's state lies on a mesh: restarts and levels each on their own devices, everything
else on all.

The levels of a device must be equally many, so that their arrays are filled up with rows of zeros,
whose gradients are zero. What is stored and what is returned has neither those rows nor a mesh: a
training goes on with any number of devices. It refuses to know what is learned.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import PyTree

from nestedvi.devices import check_divides, put, size_of, to_host

__all__ = ["NO_LEVELS", "Placement", "level_axes_of_optimiser", "no_levels"]

NO_LEVELS = -1
"""In place of the axis along which an array has a row for each of levels 2 … K."""


def no_levels(tree: PyTree) -> PyTree:
    """`NO_LEVELS` for every array."""
    return jax.tree.map(lambda _: NO_LEVELS, tree)


def level_axes_of_optimiser(init: Any, params: PyTree, axes: PyTree) -> PyTree:
    """The level axis of every array of an optimiser's state: the one that grows when parameters
    have a row more. So the state may be of any form.
    """

    def state_with(more):
        def shape(x, axis):
            sizes = [size + more * (i == axis) for i, size in enumerate(x.shape)]
            return jax.ShapeDtypeStruct(sizes, x.dtype)

        return jax.eval_shape(init, jax.tree.map(shape, params, axes))

    def axis(one, two):
        differ = [i for i, (a, b) in enumerate(zip(one.shape, two.shape, strict=True)) if a != b]
        return differ[0] if differ else NO_LEVELS

    return jax.tree.map(axis, state_with(0), state_with(1))


class Placement(NamedTuple):
    """A mesh, whether arrays have a leading axis of restarts, and the number of rows of those that
    have a level axis (K-1, if there are such).
    """

    mesh: Mesh
    restarts: int | None
    num_rows: int = 1

    def check(self, num_particles: int) -> None:
        """Raises if the devices cannot share the work equally."""
        parts = size_of(self.mesh, "levels")
        if size_of(self.mesh, "restarts") > 1 and self.restarts is None:
            raise ValueError(
                "The mesh has an axis of restarts, and restarts was not given; build the sampler"
                " with nvi.stack(key, make, restarts) and pass restarts=…, or use other axes."
            )
        check_divides(self.restarts or 1, "restarts", self.mesh, "restarts")
        check_divides(num_particles, "num_particles", self.mesh, "particles")
        if parts > self.num_rows:
            raise ValueError(
                f"{parts} devices along 'levels' are more than the K-1 = {self.num_rows} levels"
                " after the first. Use fewer devices, or more levels."
            )

    def place(self, tree: PyTree, axes: PyTree, shared: bool = False) -> PyTree:
        """Arrays of one device, filled up and laid out. `shared` ones have no axis of restarts."""
        parts = size_of(self.mesh, "levels")
        missing = -(-self.num_rows // parts) * parts - self.num_rows

        def fill(x, axis):
            if axis == NO_LEVELS or not missing:
                return x
            widths = [(0, missing if i == axis else 0) for i in range(x.ndim)]
            return jnp.pad(x, widths)

        filled = jax.tree.map(fill, tree, axes)
        specs = jax.tree.map(lambda x, axis: self._spec(x.ndim, axis, shared), filled, axes)
        return put(filled, self.mesh, specs)

    def _spec(self, ndim: int, axis: int, shared: bool) -> PartitionSpec:
        names: list[str | None] = [None] * ndim
        if not shared and self.restarts is not None and "restarts" in self.mesh.axis_names:
            names[0] = "restarts"
        if axis != NO_LEVELS and "levels" in self.mesh.axis_names:
            names[axis] = "levels"
        return PartitionSpec(*names)

    def whole(self, tree: PyTree, axes: PyTree) -> PyTree:
        """Arrays of the mesh as they are on one device, of NumPy. In several processes those that
        are laid out stay so if no rows were added: each process can store its own part.
        """
        several = self.mesh.is_multi_process

        def one(x, axis):
            filled = axis != NO_LEVELS and x.shape[axis] > self.num_rows
            if several and not filled and not x.is_fully_replicated:
                return x
            host = np.asarray(to_host(x))
            if axis == NO_LEVELS:
                return host
            return host[(slice(None),) * axis + (slice(self.num_rows),)]

        return jax.tree.map(one, tree, axes)
