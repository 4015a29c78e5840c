"""Finding the mass of a density: where a search begins, what it ends with, and telling a density
without a finite normaliser from one that is merely wide.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.inference.answer import Request
from nestedvi.inference.search import (
    RunawayError,
    _round,
    check_mass,
    check_width,
    first_coordinates,
    search,
    settle,
)
from nestedvi.inference.tempered_smc import unfinished
from nestedvi.smc.tempering import Plan

IMPROPER = {
    "flat in one of ten": (10, 0, lambda z: -0.5 * jnp.sum(z[1:] ** 2)),
    "flat along a narrow ridge": (3, 0, lambda z: -50 * (z[0] + z[1]) ** 2 - 0.5 * z[2] ** 2),
    "flat to one side": (1, 0, lambda z: -jnp.exp(z[0])),
    "growing": (2, 1, lambda z: z[1] - 0.5 * z[0] ** 2),
}
PROPER = {
    "one wide direction of ten": (
        10,
        [3000.0] + [1.0] * 9,
        lambda z: -0.5 * jnp.sum(z[1:] ** 2) - 0.5 * (z[0] / 3000) ** 2,
    ),
    "narrow ridge": (2, [10.0, 10.0], lambda z: -50 * (z[0] + z[1]) ** 2 - 0.5 * (z[0] / 10) ** 2),
    "two far modes": (
        1,
        [50.0],
        lambda z: jnp.logaddexp(-0.5 * (z[0] - 50) ** 2, -0.5 * (z[0] + 50) ** 2),
    ),
}
TARGET = nvi.DiagonalNormal(jnp.array([3.0, -1.0]), jnp.array([0.5, 2.0]))
UNITS = np.array([1.0, 100.0])
NAMES = ("slope", "level")


def place(key, log_gamma, dim, prior=None):
    """Mean and spread of what a search finds, and what it says against itself."""
    names = tuple(f"slope[{i}]" for i in range(dim))
    request = Request(nvi.Density(log_gamma), dim, prior=prior, names=names)
    target, run = search(key, request, 1000, Plan(0.6, 3, draws=4))
    z = np.asarray(target.map(run.z))
    return z.mean(axis=0), z.std(axis=0), unfinished(run)


@pytest.mark.slow
@pytest.mark.parametrize("case", IMPROPER)
def test_mass_that_runs_away_is_seen(case, key):
    dim, coordinate, log_gamma = IMPROPER[case]
    with pytest.raises(RunawayError, match="log Z runs away") as error:
        place(key, log_gamma, dim)
    # Both ends of the ridge run away together.
    assert f"along slope[{coordinate}] (width" in str(error.value) or "ridge" in case
    before, after = re.search(r"width (\S+), then (\S+) and", str(error.value)).groups()
    assert float(after) > 30 * float(before)


@pytest.mark.slow
@pytest.mark.parametrize("case", PROPER)
def test_wide_is_not_improper(case, key):
    """The spread is right to a half, enough for a sampler to start from, also where the first
    search was far too narrow.
    """
    dim, spread, log_gamma = PROPER[case]
    _, width, diagnosis = place(key, log_gamma, dim)
    assert diagnosis == () and (abs(width / spread - 1) < 0.5).all(), width


@pytest.mark.slow
def test_a_cauchy_is_proper(key):
    assert np.isfinite(place(key, lambda z: -jnp.sum(jnp.log1p(z**2)), 2)[1]).all()


@pytest.mark.slow
def test_a_collapse_is_not_called_no_mass(key):
    with pytest.raises(
        nvi.errors.DensityError, match=r"all particles on one point.*grows without bound"
    ):
        place(key, lambda z: 0.1 * jnp.sum(z**2), 2)


@pytest.mark.slow
def test_the_prior_says_where_to_look(key):
    """exp(−((z − 500)/0.01)²/2) with a prior of its own place and size."""

    def prior(key, num):
        return 500 + 0.02 * jax.random.normal(key, (num, 1))

    mean, spread, _ = place(key, lambda z: -0.5 * ((z[0] - 500) / 0.01) ** 2, 1, prior)
    assert abs(mean[0] - 500) < 0.005 and 0.008 < spread[0] < 0.012
    with pytest.raises(nvi.errors.DensityError, match=r"around draws of the prior.*Check the data"):
        place(key, lambda z: jnp.nan * z[0], 1, prior)


@pytest.mark.slow
def test_the_search_finds_place_and_size(key):
    """Mean and spread of the target, to a fifth: good enough to start learning from."""
    loc, scale = np.array([3.0, -20.0, 0.5]), np.array([0.1, 4.0, 1.0])
    mean, spread, diagnosis = place(key, lambda z: -0.5 * jnp.sum(((z - loc) / scale) ** 2), 3)
    assert (
        diagnosis == ()
        and (abs(mean - loc) < 0.2 * scale).all()
        and (abs(spread / scale - 1) < 0.2).all()
    ), (mean, spread)


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


def test_particles_that_stay_on_one_point_are_refused(key):
    """Widths of zero say nothing of the density, though they do not grow."""
    point = target(lambda z: jnp.where(jnp.all(z == jnp.asarray(UNITS)), 0.0, -jnp.inf))
    z = np.ones((500, 2), np.float32)
    z[:100] += 0.5
    with pytest.raises(nvi.errors.DensityError, match="all particles on one point"):
        settle(key, point, z, NAMES)


def test_a_round_is_one_program_on_an_accelerator_and_many_calls_on_the_host(key, monkeypatch):
    """With the same noise particles end at the same places, but for those that rounding sends
    elsewhere.
    """
    density, z = target(lambda z: -0.5 * jnp.sum((z / UNITS) ** 2)), np.asarray(normal(key))

    def moved():
        return _round(np.random.default_rng(0), density, z.astype(np.float64), z.dtype)

    here = moved()
    monkeypatch.setattr("nestedvi.inference.search.is_on_host", lambda: False)
    there = moved()
    assert here[2] == there[2] == 11 * len(z)
    np.testing.assert_allclose(there[1], here[1], atol=0.02)
    near = np.isclose(there[0], here[0], rtol=1e-3, atol=1e-3).all(axis=1)
    assert near.mean() > 0.95


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
