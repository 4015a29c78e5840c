"""First-order transitions along temperatures: seen in a tempered run, and passed by thresholds.

Where a narrow part of the target and a wide one have equal mass at some temperature, the log ratios
log γ(z) − log q_1(z) of the particles, the negative energies of physics, fall into two groups with
a gap between them. Hardly any particle crosses it, so that the groups' shares are those of the few
that found the narrow part, and batches that all missed it agree. A transition that no particle has
passed cannot be seen.
"""

from typing import NamedTuple

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from nestedvi._types import Key
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.particles.resampling import systematic
from nestedvi.particles.weights import normalise
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.nested_sampling import NestedPlan, nested_sampling
from nestedvi.smc.tempering import Tempering

__all__ = ["MOST_DIMENSIONS", "Transition", "find_transition", "past_transition"]

# Two groups are apart when the gap between their means is so many times the sum of their standard
# deviations (1.3 for the halves of a Gaussian, up to 2.4 for skew and heavy-tailed ratios) and so
# many nats. The lower must have the first share of the particles, or it is a tail; the higher,
# which temperatures are late to find, the second, and so many particles.
_APART, _NATS = 2.5, 4.0
_LOWER_SHARE, _HIGHER_SHARE, _FEWEST = 0.05, 0.005, 3
# At lower temperatures the base's own parts of several widths are the groups.
_HOTTEST = 0.1
# Slice steps are needed for each dimension: with more of them thresholds cost too much to be turned
# to unasked.
MOST_DIMENSIONS = 32
_PLAN = NestedPlan(draws=64)


class Transition(NamedTuple):
    """Where it shows most: the temperature, by how many nats the two groups' log ratios differ, how
    far that is in their standard deviations, and the share of the particles that are in the
    narrow part: the group with the higher ratios.
    """

    beta: float
    gap: float
    apart: float
    share: float


def find_transition(run: Tempering) -> Transition | None:
    """The temperature at which log ratios are furthest from being one group; None if they are one
    at each.
    """
    # Moves at the same temperature as before left one row of ratios.
    betas = np.unique(run.betas)
    found = [
        Transition(float(beta), *_two_groups(log_ratio))
        for beta, log_ratio in zip(betas, run.log_ratios[1:], strict=False)
    ]
    apart = [one for one in found if one.apart > _APART and one.gap > _NATS and one.beta > _HOTTEST]
    return max(apart, key=lambda one: one.apart, default=None)


def _two_groups(log_ratio: Float[np.ndarray, " particles"]) -> tuple[float, float, float]:
    """The gap between the means of two groups in nats and in the sum of their standard deviations,
    and the share of the higher one, where particles are split so that they vary least within
    groups.
    """
    x = np.sort(np.asarray(log_ratio, np.float64))
    x = x[np.abs(x) < 1e29]
    num = len(x)
    lower, higher = (int(np.ceil(share * num)) for share in (_LOWER_SHARE, _HIGHER_SHARE))
    split = np.arange(max(lower, _FEWEST), num - max(higher, _FEWEST) + 1)
    if not len(split):
        return 0.0, 0.0, 0.0
    # Around the mean, so that squares lose no digits.
    x = x - x.mean()
    sums, squares = np.cumsum(x)[split - 1], np.cumsum(x**2)[split - 1]
    low, high = sums / split, -sums / (num - split)
    var_low = np.maximum(squares / split - low**2, 0.0)
    var_high = np.maximum((np.sum(x**2) - squares) / (num - split) - high**2, 0.0)
    at = int(np.argmin(split * var_low + (num - split) * var_high))
    gap, spread = high[at] - low[at], np.sqrt(var_low[at]) + np.sqrt(var_high[at])
    return float(gap), float(gap / max(spread, 1e-6)), float(1 - split[at] / num)


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
