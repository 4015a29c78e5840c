"""First-order transitions along temperatures, passed by thresholds.

Where a narrow part of the target and a wide one have equal mass at some temperature, the log ratios
log γ(z) − log q_1(z) of the particles, the negative energies of physics, fall into two groups with
a gap between them. Hardly any particle crosses it, so that the groups' shares are those of the few
that found the narrow part, and batches that all missed it agree. A transition that no particle has
passed cannot be seen.
"""

import numpy as np
from jax.sharding import Mesh

from nestedvi._types import Key
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.particles.weights import normalise, systematic
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.nested_sampling import NestedPlan, nested_sampling
from nestedvi.smc.tempering import Tempering, find_transition

__all__ = ["MOST_DIMENSIONS", "past_transition"]

# Slice steps are needed for each dimension: with more of them thresholds cost too much to be turned
# to unasked.
MOST_DIMENSIONS = 32
_PLAN = NestedPlan(draws=64)


def past_transition(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    run: Tempering,
    *,
    piece: int | None = None,
    mesh: Mesh | None = None,
) -> Tempering:
    """The run itself, if it shows no transition or has too many dimensions; else with particles of
    it and of a run along thresholds from the same base, each as many as its Ẑ says. Its Ẑ is the
    mean of both.
    """
    num, dim = run.z.shape
    if dim > MOST_DIMENSIONS or find_transition(run) is None:
        return run
    key_run, key_pick = split_on_host(key, 2)
    other = nested_sampling(key_run, base, target, _PLAN, num_particles=num, piece=piece, mesh=mesh)
    log_w = np.repeat([run.log_Z_hat, other.log_Z_hat], num)
    picks = systematic(generator(key_pick).uniform(), normalise(log_w), num)
    z = np.concatenate([run.z, other.z])[picks]
    log_ratio = np.concatenate([run.log_ratios[-1], other.log_ratio])[picks]
    log_Z = float(np.logaddexp(run.log_Z_hat, other.log_Z_hat) - np.log(2))
    return run._replace(
        z=z,
        log_w=np.full((1, num), log_Z),
        history=z[None],
        log_ratios=np.concatenate([run.log_ratios[:-1], log_ratio[None]]),
        # What the two differ by is an error too.
        log_Z_variance=(
            run.log_Z_variance + other.log_Z_variance + (run.log_Z_hat - other.log_Z_hat) ** 2
        )
        / 4,
        values=run.values + other.values,
    )
