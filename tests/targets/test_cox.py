"""The Cox process: its density by SciPy, its counts as they always were."""

import jax.numpy as jnp
import numpy as np
from scipy import stats

from nestedvi.targets.cox import CoxProcess


def test_the_density_by_hand(x64):
    """The field in its own coordinates: a multivariate normal, less the determinant of the change
    of coordinates."""
    density = CoxProcess(4)
    counts = np.asarray(density.counts)
    cell = [(0.125 + 0.25 * i, 0.125 + 0.25 * j) for i in range(4) for j in range(4)]
    covariance = [[1.91 * np.exp(-np.hypot(a - c, b - d) / 0.2) for c, d in cell] for a, b in cell]
    mean = np.full(16, np.log(126) - 1.91 / 2)
    factor = np.linalg.cholesky(covariance)
    for z in np.random.default_rng(0).normal(size=(3, 16)):
        field = mean + factor @ z
        by_hand = stats.multivariate_normal.logpdf(field, mean, covariance)
        by_hand += (
            np.log(np.diag(factor)).sum() + stats.poisson.logpmf(counts, np.exp(field) / 16).sum()
        )
        np.testing.assert_allclose(density.log_gamma(jnp.asarray(z)), by_hand, rtol=1e-10)


def test_the_counts_are_frozen(x64):
    counts = np.asarray(CoxProcess().counts).reshape(10, 10).astype(int)
    assert counts.sum() == 96 and counts.max() == 5
    np.testing.assert_array_equal(counts[0], [1, 0, 1, 0, 0, 1, 5, 0, 0, 4])
    np.testing.assert_array_equal(counts[-1], [2, 2, 2, 3, 2, 4, 1, 2, 4, 0])
