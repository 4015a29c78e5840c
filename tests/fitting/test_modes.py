"""Modes and the shape of the density around them, where both are known, and what climbs from far
and near find.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.fitting.modes import Modes, find_modes, search_modes, slopes, survey

CENTRES = np.array([[3.0, 0.0], [-3.0, 1.0], [0.0, -4.0]])
DIM = 5
FAR = np.full(DIM, 8.0)


def three(z):
    return jnp.logaddexp(
        jnp.logaddexp(
            -0.5 * jnp.sum((z - CENTRES[0]) ** 2) / 0.25, -0.5 * jnp.sum((z - CENTRES[1]) ** 2)
        ),
        1.0 - 0.5 * jnp.sum((z - CENTRES[2]) ** 2) / 0.09,
    )


def test_every_mode_with_its_width(x64):
    rng = np.random.default_rng(0)
    modes = find_modes(nvi.Density(three), rng.normal(size=(30, 2)) * 4)
    assert len(modes.z) == 3 and modes.gradients > 30
    order = [int(np.argmin(np.linalg.norm(CENTRES - z, axis=1))) for z in modes.z]
    assert sorted(order) == [0, 1, 2] and (np.diff(modes.log_gamma) <= 0).all()
    widths = np.array([0.5, 1.0, 0.3])[order]
    np.testing.assert_allclose(modes.z, CENTRES[order], atol=0.01)
    np.testing.assert_allclose(modes.roots, widths[:, None, None] * np.eye(2), atol=0.01)


def test_laplace_is_exact_for_a_gaussian(x64):
    precision = np.array([[4.0, 1.5], [1.5, 1.0]])
    gaussian = nvi.Density(lambda z: -0.5 * (z - 2) @ jnp.asarray(precision) @ (z - 2))
    modes = find_modes(gaussian, np.zeros((2, 2)))
    exact = np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
    np.testing.assert_allclose(modes.log_mass, [exact], atol=1e-8)


def test_known_modes_are_kept_and_counted_once(x64):
    start = CENTRES[:1] + 0.1
    first = find_modes(nvi.Density(three), start)
    both = find_modes(nvi.Density(three), CENTRES[:2] + 0.1, known=first)
    assert len(first.z) == 1 and len(both.z) == 2
    np.testing.assert_array_equal(both.z[0], first.z[0])
    assert len(find_modes(nvi.Density(three), CENTRES, most=2).z) == 2


def spike_in_slab(z):
    """Half of the mass within a hundredth of the slab's width, one width from its centre."""
    spike = -0.5 * jnp.sum((z - 0.5) ** 2) / 0.01**2 - z.shape[0] * jnp.log(0.01)
    return jnp.logaddexp(spike, -0.5 * jnp.sum(z**2))


def test_a_spike_inside_of_a_known_slab_is_another_mode(x64):
    """The slab's shape covers the place of the spike, but its top is far below."""
    target = nvi.Density(spike_in_slab)
    slab = find_modes(target, np.zeros((1, 4)))
    np.testing.assert_allclose(slab.roots[0], np.eye(4), atol=0.01)
    both = find_modes(target, np.full((1, 4), 0.505), known=slab)
    assert len(both.z) == 2
    np.testing.assert_allclose(both.z[1], 0.5, atol=1e-3)
    np.testing.assert_allclose(both.roots[1], 0.01 * np.eye(4), atol=1e-4)
    # Half of the mass each; and a second climb to the spike finds nothing new.
    np.testing.assert_allclose(*both.log_mass, atol=0.01)
    assert len(find_modes(target, np.full((1, 4), 0.495), known=both).z) == 2


def test_a_survey_goes_on_with_climbs_inside_of_a_slab(x64):
    """Short climbs that rise above the top of a known mode are not near it, wherever they are."""
    target = nvi.Density(spike_in_slab)
    slab = find_modes(target, np.zeros((1, 4)))
    starts = np.array([[0.505] * 4, [-0.5] * 4])
    assert len(survey(target, starts, slab, most=20).z) == 2
    assert len(survey(target, starts[1:], slab, most=20).z) == 1


@pytest.mark.parametrize("nothing", [-jnp.inf, jnp.nan])
def test_no_mode_where_there_is_no_mass(nothing):
    assert len(find_modes(nvi.Density(lambda z: nothing + 0 * z[0]), np.zeros((2, 3))).z) == 0


def test_a_flat_direction_gets_the_largest_width(x64):
    modes = find_modes(nvi.Density(lambda z: -0.5 * z[0] ** 2), np.ones((1, 2)))
    np.testing.assert_allclose(np.abs(np.diag(modes.roots[0])), [1.0, 30.0], rtol=1e-6)


def test_slopes_are_gradients_at_every_place(x64):
    z = np.random.default_rng(0).normal(size=(70, 3))
    np.testing.assert_allclose(slopes(nvi.Density(lambda z: -jnp.sum(z**4)), z), -4 * z**3)


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
    assert abs(modes.total_log_mass) < 1e-3


def test_tops_without_mass_are_no_modes(x64):
    """Two hundred tops, of which all but one are e^-100 as high."""

    def log_gamma(z):
        return -50 * (1 - jnp.cos(7 * z[0])) - 0.5 * z[0] ** 2 - 100 * (jnp.abs(z[0]) > 0.4)

    rng = np.random.default_rng(0)
    modes = search_modes(rng, plain(log_gamma, 1), 1, rng.normal(size=(500, 1)))
    assert len(modes.z) == 1 and abs(modes.z[0, 0]) < 1e-4


def test_a_flat_mode_is_not_believed():
    flat = Modes(np.zeros((1, 2)), np.zeros(1), np.diag([1.0, 30.0])[None], 0)
    assert flat.total_log_mass == -np.inf


def test_ends_on_slopes_are_not_where_more_climbs_begin():
    """Two modes and two ends of climbs in tails: those say nothing of where modes are."""
    narrow, flat = 0.5 * np.eye(2), np.diag([0.5, 30.0])
    z, roots = np.array([[0.0, 0], [1, 0], [500, 0], [0, -900]]), [narrow, narrow, flat, flat]
    modes = Modes(z, np.zeros(4), np.array(roots), 0)
    np.testing.assert_array_equal(modes.tops, z[:2])
    np.testing.assert_array_equal(Modes(z[2:], np.zeros(2), np.array(roots[2:]), 0).tops, z[2:])


def test_a_search_among_heavy_tails_stays_among_the_modes():
    """Products of Student-t coordinates: climbs from far away end in their tails, everywhere."""
    rng = np.random.default_rng(0)
    places = jnp.asarray(10 * rng.uniform(-1, 1, size=(4, 20)))

    def log_gamma(z):
        return jax.nn.logsumexp(jnp.sum(-1.5 * jnp.log1p((z - places) ** 2 / 2), axis=1))

    particles = np.asarray(places)[rng.integers(4, size=100)] + rng.standard_t(2, size=(100, 20))
    target = Pullback(nvi.Density(log_gamma), AffineMap(jnp.zeros(20), jnp.ones(20)))
    modes = search_modes(np.random.default_rng(1), target, 20, particles)
    assert modes.is_complete and len(modes.tops) == 4
    assert np.abs(np.sort(modes.tops[:, 0]) - np.sort(places[:, 0])).max() < 0.5
