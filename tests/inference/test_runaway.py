"""Widths that settle and widths that do not, without a search before them."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.inference.runaway import RunawayError, check_width, settle

UNITS = np.array([1.0, 100.0])
NAMES = ("slope", "level")


def target(log_gamma):
    return Pullback(nvi.Density(log_gamma), AffineMap(jnp.zeros(2), jnp.asarray(UNITS)))


def normal(key):
    return jax.random.normal(key, (1000, 2))


def test_a_proper_density_settles(key):
    """Particles of the density itself stay as wide as they are, to a quarter."""
    z, values = settle(key, target(lambda z: -0.5 * jnp.sum((z / UNITS) ** 2)), normal(key), NAMES)
    assert z.shape == (500, 2) and values % 500 == 0
    np.testing.assert_allclose(z.std(axis=0), [1.0, 1.0], rtol=0.25)


def test_a_flat_direction_is_refused_by_name_in_the_users_units(key):
    with pytest.raises(RunawayError, match="particles keep spreading along level") as error:
        settle(key, target(lambda z: -0.5 * z[0] ** 2), normal(key), NAMES)
    before, after = re.search(r"width (\S+), then (\S+) and", str(error.value)).groups()
    assert 30 < float(before) < 200 and float(after) > 30 * float(before)


def test_a_proper_density_settles_however_wide_it_is(key):
    """N(0, 10⁵² I), whose width is 26 orders of magnitude above what particles begin with."""
    z, _ = settle(key, target(lambda z: -0.5 * jnp.sum((z / 1e26) ** 2)), normal(key), NAMES)
    np.testing.assert_allclose(z.std(axis=0) * UNITS, [1e26, 1e26], rtol=0.3)


def test_an_overflow_is_no_end_of_a_flat_direction(key):
    """The squares of a flat ridge overflow at 10¹⁹, which looks like a border."""
    ridge = target(lambda z: -0.5 * (z[0] - z[1] / 100) ** 2 - 0.0 * jnp.sum(z**2))
    with pytest.raises(RunawayError, match="particles keep spreading along"):
        settle(key, ridge, normal(key), NAMES)


def test_astronomic_widths_are_refused_without_moves():
    z = np.array([[0.0, 0.0], [1e12, 1.0]])
    with pytest.raises(RunawayError, match="along slope"):
        check_width(target(lambda z: 0.0), z, NAMES)
    check_width(target(lambda z: 0.0), z / 1e9, NAMES)
