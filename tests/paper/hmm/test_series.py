"""The linear-Gaussian rows: which filters there are, and the bootstrap filter against Kalman's."""

import jax
import numpy as np
import pytest

from nestedvi.grid.cells import cell_key
from nestedvi.paper.hmm.cells import series_cells
from nestedvi.paper.hmm.config import HMMConfig
from nestedvi.paper.hmm.linear_gaussian import LinearGaussian
from nestedvi.paper.hmm.series import run_series

CONFIG = HMMConfig(series=2, series_steps=3, series_particles=50, series_batches=40)


@pytest.mark.slow
def test_a_filter_that_learns_nothing_is_near_the_exact_evidence(tmp_path):
    """log of a mean of 40 Ẑ, each of 50 particles: within a few of its standard errors, and above
    the mean of log Ẑ.
    """
    row, arrays = run_series(series_cells(CONFIG)[0], tmp_path, None)
    keys = jax.random.split(cell_key(CONFIG.seed, "series"), 2)
    model = LinearGaussian()
    exact = [float(model.log_evidence(model.simulate(key, 3))) for key in keys]
    np.testing.assert_allclose(arrays["exact"], exact, rtol=1e-4)
    stderr = np.sqrt(arrays["variance"].mean() / CONFIG.series_batches)
    assert row["log_mean_Z_hat_error"] < 4 * stderr
    assert row["gap_to_kalman_mean"] > -4 * stderr
    assert row["filter"] == "bootstrap" and row["train_seconds"] == 0
    assert not list(tmp_path.iterdir()), "nothing is trained"
