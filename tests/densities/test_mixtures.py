"""Densities made of densities, against SciPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nestedvi as nvi
from nestedvi.densities.gaussian import CorrelatedMixture
from nestedvi.densities.mixtures import Mixture, ScaleMixture
from tests.helpers.draws import check_draws

pytestmark = pytest.mark.usefixtures("x64")
POINT = np.array([0.7, -1.2])


def test_experts():
    density = Mixture(
        [nvi.DiagonalNormal(jnp.zeros(2), 1.0), nvi.DiagonalNormal(jnp.full(2, 3.0), 2.0)],
        np.log([0.25, 0.75]),
    )
    parts = [stats.norm(0, 1).pdf(POINT).prod(), stats.norm(3, 2).pdf(POINT).prod()]
    np.testing.assert_allclose(
        density.log_gamma(POINT), np.log(0.25 * parts[0] + 0.75 * parts[1]), rtol=1e-10
    )
    np.testing.assert_allclose(density.log_parts(POINT), np.log(parts), rtol=1e-10)
    between = 0.25 * 0.75 * 9.0
    check_draws(
        density, np.full(2, 2.25), np.full((2, 2), between) + np.eye(2) * (0.25 * 1 + 0.75 * 4)
    )


def test_weights_may_be_whole_numbers(key):
    one = CorrelatedMixture(np.zeros((2, 2)), np.stack([np.eye(2)] * 2), [0, 0])
    assert Mixture((one, one), [0, 0]).sample(key).shape == one.sample(key).shape == (2,)


def test_a_scale_mixture():
    density = ScaleMixture(2, (0.5, 4.0))
    expected = np.log(0.5 * sum(stats.norm(0, s).pdf(POINT).prod() for s in (0.5, 4.0)))
    np.testing.assert_allclose(density.log_gamma(POINT), expected, rtol=1e-10)
    check_draws(density, np.zeros(2), np.eye(2) * 0.5 * (0.25 + 16.0))
