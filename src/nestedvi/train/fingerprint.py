"""What tells one training from another: digests of arrays, their shapes, and probes of what is made
of functions and has no digest. It compares nothing: checkpoints do.
"""

import hashlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from nestedvi.train.objective import Objective

__all__ = [
    "describe_arrays",
    "describe_objective",
    "digest_arrays",
    "digest_static",
    "probe_optimiser",
]

_PROBED_STEPS = (0, 10, 100, 1000, 10_000, 100_000)


def digest_static(static: PyTree) -> str:
    """Everything of a module that is not an array (resampling rules, schedules, step counts),
    without memory addresses.
    """
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", repr(static)).encode()).hexdigest()[:16]


def describe_arrays(tree: PyTree) -> list[str]:
    """Path, dtype and shape of every array: what two states must share to be interchangeable."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [
        f"{jax.tree_util.keystr(at)}: {np.asarray(x).dtype}{list(np.shape(x))}" for at, x in leaves
    ]


def digest_arrays(tree: PyTree) -> str:
    """A digest of the bytes of every array."""
    digest = hashlib.sha256()
    for x in jax.tree.leaves(tree):
        digest.update(np.asarray(x).tobytes())
    return digest.hexdigest()[:16]


def probe_optimiser(
    optimiser: optax.GradientTransformation, params: PyTree, opt_state: Any
) -> Float[Array, " probes"]:
    """An optimiser is made of closures: its answers to changing gradients, early and late in
    training, tell two apart.
    """
    sizes = []
    for i, step in enumerate(_PROBED_STEPS):

        def at_step(x, step=step):
            return jnp.full_like(x, step) if jnp.issubdtype(x.dtype, jnp.integer) else x

        grads = jax.tree.map(
            lambda x, size=0.1 * (-1) ** i / (i + 1): jnp.full_like(x, size), params
        )
        updates, opt_state = optimiser.update(grads, jax.tree.map(at_step, opt_state), params)
        sizes.append(sum(jnp.sum(jnp.abs(u)) for u in jax.tree.leaves(updates)))
    return jnp.stack(sizes)


def describe_objective(objective: Objective) -> dict[str, Any]:
    """The same text in every process, which a set's own order is not; a divergence given by a
    function is described by its values.
    """
    fields = {
        name: sorted(x) if isinstance(x, frozenset) else repr(x)
        for name, x in vars(objective).items()
    }
    return {
        **fields,
        "slope": [
            f"{x:.5g}" for x in np.asarray(objective.divergence.slope(jnp.array([-2.0, 1.0])))
        ],
    }
