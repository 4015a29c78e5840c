"""Where a search begins: the prior's place and units, and errors where there is nothing to find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.inference.answer import Request
from nestedvi.inference.coordinates import check_mass, first_coordinates, in_units_of

TARGET = nvi.DiagonalNormal(jnp.array([3.0, -1.0]), jnp.array([0.5, 2.0]))


def test_the_prior_gives_place_and_units(key):
    """Half the distance of the 16 % and 84 % quantiles of a Gaussian is its standard deviation."""

    def prior(key, num):
        return 5.0 + jnp.array([1.0, 10.0]) * jax.random.normal(key, (num, 2))

    there = first_coordinates(key, Request(TARGET, 2, prior=prior))
    np.testing.assert_allclose(there.map.shift, [5.0, 5.0], atol=1.5)
    np.testing.assert_allclose(there.map.matrix, [1.0, 10.0], rtol=0.15)
    here = first_coordinates(key, Request(TARGET, 2))
    np.testing.assert_array_equal(here.map.matrix, [1.0, 1.0])


def test_a_vague_prior_gives_way_to_what_the_data_make_likely(key):
    """Effects under a precision ~ Gamma(.01, .01): half of the prior is beyond 10¹⁰, the data are
    of order one. A wide prior whose scale is right stays as it is.
    """

    def prior(key, num):
        key_scale, key_effect = jax.random.split(key)
        log_scale = 60.0 * jax.random.uniform(key_scale, (num, 1))
        effect = jnp.exp(log_scale) * jax.random.normal(key_effect, (num, 1))
        return jnp.concatenate([effect, log_scale], axis=1)

    def log_gamma(z):
        return -0.5 * z[0] ** 2 * jnp.exp(-2 * z[1]) - z[1] - 0.5 * (z[0] - 1.0) ** 2

    there = first_coordinates(key, Request(nvi.Density(log_gamma), 2, prior=prior))
    assert np.all(np.abs(there.map.shift) < 10) and np.all(there.map.matrix < 100)

    def wide(key, num):
        return 1e6 * jax.random.normal(key, (num, 2))

    far = nvi.Density(lambda z: -0.5 * jnp.sum(((z - 7e5) / 1e3) ** 2))
    there = first_coordinates(key, Request(far, 2, prior=wide))
    np.testing.assert_allclose(there.map.matrix, [1e6, 1e6], rtol=0.15)


def test_units_of_particles_make_them_unit_wide(key, x64):
    start = first_coordinates(key, Request(TARGET, 2))
    z = jax.vmap(TARGET.sample)(jax.random.split(key, 5000))
    target = in_units_of(start, z, width=2.0)
    u = (z - target.map.shift) / target.map.matrix
    np.testing.assert_allclose(jnp.std(u, axis=0), [2.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(jnp.mean(u, axis=0), [0.0, 0.0], atol=1e-6)
    expected = TARGET.log_gamma(z[0]) + jnp.sum(jnp.log(target.map.matrix))
    np.testing.assert_allclose(target.log_gamma(u[0]), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("finite", "spread", "has_prior", "match"),
    [
        (False, 1.0, True, "around draws of the prior.*Check the data"),
        (False, 1.0, False, "scale 0.3 to 30.*Shift or rescale"),
        (True, 0.0, False, "all particles on one point.*grows without bound"),
        (True, float("nan"), False, "all particles on one point"),
    ],
)
def test_nothing_to_work_on_is_an_error(finite, spread, has_prior, match):
    z = 1.0 + spread * np.array([[-1.0, 1.0], [1.0, -1.0]])
    with pytest.raises(nvi.errors.DensityError, match=match):
        check_mass(finite, z, has_prior)


def test_mass_is_no_error():
    check_mass(True, np.array([[-1.0, 1.0], [1.0, -1.0]]), False)
