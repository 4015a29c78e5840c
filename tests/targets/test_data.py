"""The numbers that define targets are as they always were."""

import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.targets.data import BROWNIAN_OBSERVED, GMM40_MEANS


def test_gmm40_is_frozen():
    """Forty means in the square, the first and the last as they always were."""
    assert GMM40_MEANS.shape == (40, 2) and np.abs(GMM40_MEANS).max() < 40
    np.testing.assert_array_equal(GMM40_MEANS[[0, -1]], [[18.392, 15.473], [-18.868, -5.783]])
    density = nvi.targets.gmm40()
    # Far from the others, one mode has a fortieth of the mass.
    np.testing.assert_allclose(
        density.log_gamma(jnp.array([35.354, -35.228])), -np.log(40 * 2 * np.pi), rtol=1e-4
    )


def test_brownian_observations_are_frozen():
    """Thirty of them, the ten in the middle missing, the first and the last as they always were."""
    missing = np.isnan(BROWNIAN_OBSERVED)
    assert missing[10:20].all() and missing.sum() == 10 and len(missing) == 30
    np.testing.assert_array_equal(BROWNIAN_OBSERVED[[0, -1]], [0.21592641, -0.6202789])
