"""A normal given some coordinates: its density against the product of both parts, and its draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestedvi.densities import LowRankNormal, LowRankRoot, NormalGiven, StudentMixture
from tests.helpers.draws import check_draws

pytestmark = pytest.mark.usefixtures("x64")
MEANS, SCALES = np.array([-1.0, 2.0]), np.array([0.5, 1.5])
SLOPE = np.array([[1.0, -0.5], [0.0, 2.0], [0.3, 0.3]])


def example():
    """Coordinates 3 and 1 of five from a mixture, in that order."""
    part = StudentMixture(
        jnp.asarray([MEANS, -MEANS]), jnp.asarray([np.diag(SCALES)] * 2), jnp.zeros(2)
    )
    direction = jnp.asarray([[0.6], [0.8], [0.0]])
    root = LowRankRoot(jnp.asarray([1.0, 2.0, 0.5]), direction, jnp.asarray([3.0]))
    return NormalGiven(part, [3, 1], LowRankNormal(jnp.asarray([0.0, 1.0, -1.0]), root), SLOPE)


def test_the_density_is_the_product_of_both():
    density = example()
    z = np.random.default_rng(0).normal(size=(9, 5)) * 2
    some, rest = z[:, [3, 1]], z[:, [0, 2, 4]]
    covariance = density.rest.root.full @ density.rest.root.full.T
    mean = np.array([0.0, 1.0, -1.0]) + some @ SLOPE.T
    normal = stats.multivariate_normal(np.zeros(3), covariance)
    expected = normal.logpdf(rest - mean) + density.part.log_prob_many(some)
    np.testing.assert_allclose(density.log_prob_many(z), expected, rtol=1e-6)
    for ready in (density, density.precomputed()):
        np.testing.assert_allclose(jax.vmap(ready.log_gamma)(jnp.asarray(z)), expected, rtol=1e-6)
    assert density.log_Z == 0 and density.dim == 5


def test_draws_are_of_the_density():
    """A Student t of five degrees has 5/3 of the variance of its scale, and three draws in ten."""
    density, spread = example(), 0.7 + 0.3 * 5 / 3
    some = np.diag(SCALES**2 * spread) + np.outer(MEANS, MEANS)
    rest = SLOPE @ some @ SLOPE.T + density.rest.root.full @ density.rest.root.full.T
    order, covariance = [3, 1, 0, 2, 4], np.empty((5, 5))
    covariance[np.ix_(order, order)] = np.block([[some, some @ SLOPE.T], [SLOPE @ some, rest]])
    mean = np.array([0.0, 0.0, 1.0, 0.0, -1.0])
    check_draws(density, mean, covariance)
    on_host = density.sample_many(jax.random.key(5), 20_000)
    assert np.all(np.abs(on_host.mean(axis=0) - mean) < 5 * np.sqrt(np.diag(covariance) / 20_000))
    np.testing.assert_allclose(np.cov(on_host.T), covariance, atol=0.12 * covariance.max())


def test_whole_numbers_as_slopes_are_no_whole_draws():
    rest = example().rest
    density = NormalGiven(example().part, [0, 4], rest, np.ones((3, 2), int))
    draws = density.sample_many(jax.random.key(0), 3)
    assert draws.dtype == np.float64 and np.any(draws % 1 != 0)


@pytest.mark.parametrize(
    ("some", "slope", "expected"),
    [([1, 1], SLOPE, "different"), ([0, 5], SLOPE, "0 to 4"), ([0, 1], SLOPE.T, "slope of shape")],
)
def test_places_and_slopes_that_do_not_fit(some, slope, expected):
    with pytest.raises(ValueError, match=expected):
        NormalGiven(example().part, some, example().rest, slope)


def test_another_number_of_coordinates_is_an_error():
    with pytest.raises(ValueError, match="NormalGiven"):
        example().log_gamma(jnp.zeros(4))
