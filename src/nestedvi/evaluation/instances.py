"""Quality of an amortised sampler: one run for each of many instances, with the parameters as they
are. It refuses to train, and to know exact values.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from nestedvi._types import Key
from nestedvi.arguments import check_key, check_whole
from nestedvi.devices import Devices, as_mesh, spread
from nestedvi.particles.genealogy import distinct_ancestors
from nestedvi.precision import in_full_precision
from nestedvi.sampler.nested import NestedSampler
from nestedvi.sampler.refresh import AbstractRefresh, run_refreshed
from nestedvi.sampler.run import run

__all__ = ["InstanceEvaluation", "evaluate_instances"]

_PARTICLES_AT_ONCE = 20_000


class InstanceEvaluation(NamedTuple):
    """One entry an instance. `distinct` is the number of first-level particles that have a
    descendant at the end: after resampling the final ESS says nothing about those. Where global
    variables are moved it is the number of their values at the end, which accepted moves make more
    of: the two do not compare. A NaN density makes log Ẑ NaN for its instance alone."""

    log_Z_hat: Float[np.ndarray, " instances"]
    ess: Float[np.ndarray, " instances"]
    distinct: Int[np.ndarray, " instances"]
    num_particles: int


@eqx.filter_jit
def _runs(
    items: tuple[Key, PyTree],
    shared: tuple[Any, AbstractRefresh | None],
    num_particles: int,
    at_once: int,
    every: int,
):
    program, refresh = shared

    def one(inputs):
        key, x = inputs
        if refresh is not None:
            refreshed = run_refreshed(key, program(x), num_particles, refresh, every=every)
            return refreshed.log_Z_hat, refreshed.ess, _num_distinct(refreshed.particles.z.eta)
        result = run(key, program(x), num_particles)
        return result.log_Z_hat, result.ess, distinct_ancestors(result.ancestors)[0]

    return jax.lax.map(one, items, batch_size=at_once)


def _num_instances(data: PyTree) -> int:
    """The length of the leading axis that all arrays share."""
    sizes = {np.shape(x)[:1] for x in jax.tree.leaves(data)}
    if len(sizes) != 1 or sizes == {()}:
        raise ValueError(
            "data is a pytree of arrays with a leading axis of instances, as long in all of them;"
            f" got lengths {sorted(sizes)}."
        )
    return sizes.pop()[0]


def _num_distinct(eta: PyTree) -> Any:
    """How many values there are: moves make new ones, so ancestors do not tell. Continuous, so one
    coordinate does.
    """
    values = jnp.sort(jax.tree.leaves(eta)[0].reshape(jax.tree.leaves(eta)[0].shape[0], -1)[:, 0])
    return 1 + jnp.sum(values[1:] != values[:-1])


@in_full_precision
def evaluate_instances(
    key: Key,
    program: Callable[[PyTree], NestedSampler],
    data: PyTree,
    *,
    num_particles: int,
    at_once: int | None = None,
    refresh: AbstractRefresh | None = None,
    every: int = 1,
    devices: Devices = None,
) -> InstanceEvaluation:
    """Runs the sampler of every instance once.

    Args:
        key: randomness of all runs.
        program: makes a sampler from one instance.
        data: a pytree of arrays with a leading axis of instances.
        num_particles: S, for each instance.
        at_once: instances side by side; as many as memory suggests unless given.
        refresh: MCMC moves of global variables.
        every: moves them after every so many states; `distinct` then counts their values at the
            end.
        devices: a number, a list or a mesh along `instances`, which share the instances.

    Example:
        ```python
        def program(x):
            def log_posterior(z):
                return -0.5 * jnp.sum(z**2) - 0.5 * jnp.sum((x - z) ** 2)

            initial = nvi.DiagonalNormal(jnp.zeros(1), 2.0)
            return nvi.build(
                jax.random.key(0), "ais", target=log_posterior, initial=initial, num_levels=4
            ).sampler

        data = jax.random.normal(jax.random.key(1), (20, 3))
        nvi.evaluate_instances(jax.random.key(2), program, data, num_particles=50).log_Z_hat
        ```
    """
    check_key(key)
    num_particles = check_whole("num_particles", num_particles)
    num = check_whole("the number of instances", _num_instances(data))
    at_once = max(1, min(num, _PARTICLES_AT_ONCE // num_particles)) if at_once is None else at_once
    data = jax.tree.map(jnp.asarray, data)
    items, shared = (jax.random.split(key, num), data), (program, refresh)
    mesh = as_mesh(devices, "instances")
    if mesh is None:
        log_Z, ess, distinct = _runs(items, shared, num_particles, at_once, every)
    else:
        log_Z, ess, distinct = spread(
            _runs, mesh, "instances", items, shared, num_particles, at_once, every
        )
    return InstanceEvaluation(
        np.asarray(log_Z), np.asarray(ess), np.asarray(distinct), num_particles
    )
