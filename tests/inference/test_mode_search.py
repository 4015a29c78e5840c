"""Modes that climbs from far and near find, and what they say of an answer that misses one."""

import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.fitting.modes import Modes
from nestedvi.inference.answer import Answer
from nestedvi.inference.mode_search import missed_modes, search_modes, total_log_mass

DIM = 5
FAR = np.full(DIM, 8.0)


def two_widths(z):
    """Half of the mass has a width of one, half a width of a half, 36 of its widths away."""
    narrow = -0.5 * jnp.sum((z - FAR) ** 2) * 4 + DIM * np.log(2.0)
    return jnp.logaddexp(-0.5 * jnp.sum(z**2), narrow) - 0.5 * DIM * np.log(2 * np.pi) - np.log(2)


def plain(log_gamma, dim):
    return Pullback(nvi.Density(log_gamma), AffineMap(jnp.zeros(dim), jnp.ones(dim)))


def test_a_narrow_mode_that_a_pilot_has_missed(x64):
    rng = np.random.default_rng(0)
    pilot = rng.normal(size=(500, DIM))
    modes = search_modes(rng, plain(two_widths, DIM), DIM, pilot)
    np.testing.assert_allclose(sorted(modes.z.mean(axis=1)), [0.0, 8.0], atol=1e-3)
    # Laplace's approximation is exact for Gaussians this far apart.
    np.testing.assert_allclose(modes.log_mass, np.log([0.5, 0.5]), atol=1e-3)
    assert abs(total_log_mass(modes)) < 1e-3


def test_tops_without_mass_are_no_modes(x64):
    """Two hundred tops, of which all but one are e^-100 as high."""

    def log_gamma(z):
        return -50 * (1 - jnp.cos(7 * z[0])) - 0.5 * z[0] ** 2 - 100 * (jnp.abs(z[0]) > 0.4)

    rng = np.random.default_rng(0)
    modes = search_modes(rng, plain(log_gamma, 1), 1, rng.normal(size=(500, 1)))
    assert len(modes.z) == 1 and abs(modes.z[0, 0]) < 1e-4


@pytest.mark.parametrize(("share", "warned"), [(0.5, True), (0.9, False)])
def test_particles_that_account_for_less_than_the_modes(share, warned):
    answer = Answer(np.zeros((10, 2)), np.zeros(10), float(np.log(share)), 0.01)
    assert bool(missed_modes(0.0, answer)) == warned


def test_a_flat_mode_is_not_believed():
    flat = Modes(np.zeros((1, 2)), np.zeros(1), np.diag([1.0, 30.0])[None], 0)
    assert total_log_mass(flat) == -np.inf
