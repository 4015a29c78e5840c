"""Products of Student-t coordinates, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestedvi.densities.products import StudentProducts

MEANS = np.array([[0.5, -1.0, 0.0], [-0.6, 0.4, 2.0]])
SCALES = np.array([[0.5, 2.0, 1.0], [1.0, 0.3, 4.0]])


def products(freedom):
    return StudentProducts(MEANS, SCALES, np.log([0.3, 0.7]), freedom=freedom)


def test_the_density_of_products_is_that_of_their_coordinates(x64):
    density = products(2)
    z = np.random.default_rng(0).normal(size=(20, 3)) * 3
    factors = [stats.t(2, m, s).pdf(z).prod(axis=1) for m, s in zip(MEANS, SCALES, strict=True)]
    expected = np.log(0.3 * factors[0] + 0.7 * factors[1])
    np.testing.assert_allclose(jax.vmap(density.log_gamma)(jnp.asarray(z)), expected, rtol=1e-10)
    np.testing.assert_allclose(density.log_prob_many(z), expected, rtol=1e-10)


@pytest.mark.parametrize("many", [False, True])
def test_draws_of_products_are_of_the_density(x64, key, many):
    """The share of draws below a place, coordinate by coordinate."""
    density, num = products(1), 20_000
    draws = density.sample_many(key, num) if many else None
    if not many:
        draws = jax.vmap(density.sample)(jax.random.split(key, num))
    for place in (-3.0, 0.0, 2.0):
        parts = [stats.t(1, m, s).cdf(place) for m, s in zip(MEANS, SCALES, strict=True)]
        share = 0.3 * parts[0] + 0.7 * parts[1]
        below = np.mean(np.asarray(draws) < place, axis=0)
        assert np.all(np.abs(below - share) < 5 * np.sqrt(share * (1 - share) / num))


def test_no_degrees_of_freedom_are_refused():
    with pytest.raises(ValueError, match="above zero"):
        products(0)
