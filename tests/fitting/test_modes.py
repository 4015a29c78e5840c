"""Modes and the shape of the density around them, where both are known."""

import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.fitting.modes import find_modes, slopes

CENTRES = np.array([[3.0, 0.0], [-3.0, 1.0], [0.0, -4.0]])


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


@pytest.mark.parametrize("nothing", [-jnp.inf, jnp.nan])
def test_no_mode_where_there_is_no_mass(nothing):
    assert len(find_modes(nvi.Density(lambda z: nothing + 0 * z[0]), np.zeros((2, 3))).z) == 0


def test_a_flat_direction_gets_the_largest_width(x64):
    modes = find_modes(nvi.Density(lambda z: -0.5 * z[0] ** 2), np.ones((1, 2)))
    np.testing.assert_allclose(np.abs(np.diag(modes.roots[0])), [1.0, 30.0], rtol=1e-6)


def test_slopes_are_gradients_at_every_place(x64):
    z = np.random.default_rng(0).normal(size=(70, 3))
    np.testing.assert_allclose(slopes(nvi.Density(lambda z: -jnp.sum(z**4)), z), -4 * z**3)
