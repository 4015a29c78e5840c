"""Coordinates for a Gaussian proposal: a bijection with its determinant, and a use."""

import numpy as np
import pytest
from scipy import stats

from nestedvi.bench.warp import Warp, fit_warp

X = np.array([[-3.0, 0.5], [0.0, 0.0], [1e-9, -2.0], [40.0, 7.0]])


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0, 2.0])
def test_a_bijection_and_its_determinant(power):
    warp = Warp(np.array([0.5, -1.0]), np.array([2.0, 0.1]), np.array([power, 2 - power]))
    y = warp.forward(X)
    np.testing.assert_allclose(warp.inverse(y), X, rtol=1e-10, atol=1e-10)
    step = 1e-6
    slopes = [
        (warp.forward(X + step * unit) - warp.forward(X - step * unit))[:, i] / (2 * step)
        for i, unit in enumerate(np.eye(2))
    ]
    np.testing.assert_allclose(warp.log_det(X), np.log(slopes).sum(axis=0), atol=1e-5)
    if power == 1.0:
        np.testing.assert_allclose(y, (X - [0.5, -1.0]) / [2.0, 0.1])


def test_skewed_draws_become_symmetric():
    """Scipy's power, and less skewness than before; a Gaussian stays nearly what it is."""
    rng = np.random.default_rng(0)
    x = np.column_stack([stats.gumbel_r.rvs(size=4000, random_state=rng), rng.normal(size=4000)])
    warp = fit_warp(x)
    y = warp.forward(x)
    assert stats.skew(x[:, 0]) > 0.9 and abs(stats.skew(y[:, 0])) < 0.1
    assert abs(warp.power[1] - 1) < 0.1
    by_scipy = stats.yeojohnson((x[:, 0] - np.median(x[:, 0])) / x[:, 0].std())[0]
    np.testing.assert_allclose(y[:, 0], by_scipy, rtol=1e-3, atol=1e-3)


def test_powers_stay_where_all_numbers_are_reached():
    rng = np.random.default_rng(1)
    x = np.column_stack([np.exp(3 * rng.normal(size=2000)), -np.exp(3 * rng.normal(size=2000))])
    warp = fit_warp(x)
    np.testing.assert_array_equal(warp.power, [0.0, 2.0])
    assert np.isfinite(warp.inverse(np.array([[-5.0, -5.0], [5.0, 5.0]]))).all()
