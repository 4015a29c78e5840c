"""Climbs side by side: tops of densities with known ones, and places without mass."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.fitting.climb import climb

pytestmark = pytest.mark.usefixtures("x64")


def quadratic(scales):
    return nvi.Density(lambda z: -0.5 * jnp.sum(scales * z**2))


def test_every_climb_of_an_ill_conditioned_density_ends_at_its_top():
    """Curvatures of 10⁻² to 10²: the top within .05. Of 10⁻³ to 10³: within the half nat that a
    Newton step from there mends.
    """
    for decades, left in ((2, 0.05), (3, 0.5)):
        scales = 10.0 ** np.linspace(-decades, decades, 12)
        starts = 3 * np.random.default_rng(0).normal(size=(20, 12))
        ended = climb(quadratic(scales), starts)
        assert ended.at_top.all() and np.all(ended.log_gamma > -left)


def test_a_curved_valley():
    """Rosenbrock's function in two dimensions has its only minimum at (1, 1)."""
    valley = nvi.Density(lambda z: -100 * (z[1] - z[0] ** 2) ** 2 - (1 - z[0]) ** 2)
    ended = climb(valley, np.random.default_rng(1).normal(size=(30, 2)))
    np.testing.assert_allclose(ended.z, 1.0, atol=0.1)
    assert ended.at_top.all() and np.all(ended.log_gamma > -2e-3)


def test_steps_into_nothing_are_shortened_and_starts_there_stay():
    """log γ = log(1 − z) + z is NaN beyond one; its top is at zero."""
    density = nvi.Density(lambda z: jnp.sum(jnp.log(1 - z) + z))
    ended = climb(density, np.array([[0.9], [-3.0], [2.0]]))
    np.testing.assert_allclose(ended.z[:2], 0.0, atol=0.05)
    assert list(ended.at_top) == [True, True, False] and ended.log_gamma[2] == -np.inf


def test_climbs_do_not_depend_on_each_other():
    """Nor on how many go side by side, or on what fills their number up."""
    starts = np.random.default_rng(2).normal(size=(7, 3)) * 4
    density = quadratic(np.array([1.0, 10.0, 0.1]))
    together, alone = climb(density, starts), climb(density, starts[2:3])
    np.testing.assert_allclose(together.z[2], alone.z[0], atol=1e-12)
    pieces = climb(density, starts, piece=4)
    np.testing.assert_allclose(pieces.z, together.z, atol=1e-12)
    assert pieces.gradients == together.gradients


def test_no_rounds_say_values_and_slopes():
    starts = np.random.default_rng(3).normal(size=(5, 2))
    there = climb(quadratic(np.array([1.0, 4.0])), starts, rounds=0)
    np.testing.assert_array_equal(there.z, starts)
    np.testing.assert_allclose(there.log_gamma, -0.5 * starts**2 @ [1.0, 4.0])
    np.testing.assert_allclose(there.slope, -starts * [1.0, 4.0])
    assert there.gradients == 5 and not there.at_top.any()


def test_gradients_count_what_is_asked_of_climbs_that_go_on():
    """A start at the top takes one, and so does one without mass; no more than rounds else."""
    density = nvi.Density(lambda z: jnp.where(jnp.abs(z[0]) > 1, -jnp.inf, -(z[0] ** 2)))
    assert climb(density, np.array([[0.0], [3.0], [-3.0]])).gradients == 3
    assert climb(density, np.array([[0.5]]), rounds=7).gradients <= 8


def test_a_slope_whose_square_is_no_number_is_no_mass():
    """log γ = z − eᶻ has its top at zero and a slope of −10²⁰⁰ at 460: no warning comes from there,
    and the other climbs end at the top.
    """
    density = nvi.Density(lambda z: jnp.sum(z - jnp.exp(z)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ended = climb(density, np.array([[2.0], [460.0], [-3.0]]))
    np.testing.assert_allclose(ended.z[[0, 2]], 0.0, atol=0.05)
    assert list(ended.at_top) == [True, False, True] and ended.log_gamma[1] == -np.inf


def test_single_precision_ends_near_the_top_too():
    with jax.enable_x64(False):
        ended = climb(quadratic(np.float32([100.0, 0.01])), np.array([[3.0, 3.0], [-1.0, 9.0]]))
    assert ended.at_top.all() and np.all(ended.log_gamma > -0.05)


@pytest.mark.parametrize("device", ["cpu", None], ids=["name", "none"])
def test_the_device_may_be_asked_for_by_its_platform(device):
    with jax.default_device(device):
        assert climb(quadratic(np.ones(2)), np.ones((3, 2))).at_top.all()
