"""Sufficient statistics of clusters against one cluster at a time."""

import jax.numpy as jnp
import numpy as np

from nestedvi.paper.hmm.statistics import Statistics
from tests.helpers.small_hmm import (
    cluster_statistics,
)


def test_memory_of_hard_assignments_is_that_of_soft_ones(x64):
    """`Statistics.soft` of assignments that are zeros and ones: same numbers, means pulled to zero
    by one part in a thousand.
    """
    states = np.array([0, 1, 1, 0, 1])
    xs = np.array([1.0, -4.0, -3.0, 2.0, -5.0])
    number, mean, spread = cluster_statistics(states, xs, 3)
    soft = Statistics.soft(jnp.asarray(np.eye(3)[states]), jnp.asarray(xs))
    np.testing.assert_allclose(soft.number, number, rtol=1e-12)
    np.testing.assert_allclose(soft.mean, number * mean / (number + 1e-3), rtol=1e-12)
    np.testing.assert_allclose(
        soft.spread, spread + number * (mean - number * mean / (number + 1e-3)) ** 2, rtol=1e-12
    )
