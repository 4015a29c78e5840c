"""The trapezoidal rule of the campaign's truths."""

import numpy as np

from nestedvi.bench.campaign.case import log_integral


def test_a_gaussian_on_a_grid_integrates_to_one():
    x = np.linspace(-12.0, 12.0, 241)
    log_p = -0.5 * x[:, None] ** 2 - 0.5 * x**2 - np.log(2 * np.pi) - 1e4
    assert abs(log_integral(log_p, 0.1, 0.1) + 1e4) < 1e-8
