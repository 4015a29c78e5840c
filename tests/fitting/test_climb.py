"""Climbs side by side: tops of densities with known ones, and places without mass."""

import warnings

import numpy as np

from nestedvi.fitting.climb import climb


def quadratic(scales):
    def ask(z):
        return -0.5 * np.sum(scales * z**2, axis=1), -scales * z

    return ask


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

    def ask(z):
        x, y = z.T
        gap = y - x**2
        gradient = np.stack([400 * x * gap + 2 * (1 - x), -200 * gap], axis=1)
        return -100 * gap**2 - (1 - x) ** 2, gradient

    ended = climb(ask, np.random.default_rng(1).normal(size=(30, 2)))
    np.testing.assert_allclose(ended.z, 1.0, atol=0.1)
    assert ended.at_top.all() and np.all(ended.log_gamma > -2e-3)


def test_steps_into_nothing_are_shortened_and_starts_there_stay():
    """log γ = log(1 − z) + z is NaN beyond one; its top is at zero."""

    def ask(z):
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sum(np.log(1 - z) + z, axis=1), -1 / (1 - z) + 1

    ended = climb(ask, np.array([[0.9], [-3.0], [2.0]]))
    np.testing.assert_allclose(ended.z[:2], 0.0, atol=0.05)
    assert list(ended.at_top) == [True, True, False] and ended.log_gamma[2] == -np.inf


def test_climbs_do_not_depend_on_each_other():
    starts = np.random.default_rng(2).normal(size=(7, 3)) * 4
    together = climb(quadratic(np.array([1.0, 10.0, 0.1])), starts)
    alone = climb(quadratic(np.array([1.0, 10.0, 0.1])), starts[2:3])
    np.testing.assert_allclose(together.z[2], alone.z[0], atol=1e-12)


def test_a_slope_whose_square_is_no_number_is_no_mass():
    """log γ = z − eᶻ has its top at zero and a slope of −10²⁰⁰ at 460: no warning comes from there,
    and the other climbs end at the top.
    """

    def ask(z):
        return np.sum(z - np.exp(z), axis=1), 1 - np.exp(z)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ended = climb(ask, np.array([[2.0], [460.0], [-3.0]]))
    np.testing.assert_allclose(ended.z[[0, 2]], 0.0, atol=0.05)
    assert list(ended.at_top) == [True, False, True] and ended.log_gamma[1] == -np.inf
