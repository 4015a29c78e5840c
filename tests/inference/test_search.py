"""Finding the mass of a density, and telling one without a finite normaliser from one that is
merely wide.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.inference.answer import Request
from nestedvi.inference.runaway import RunawayError
from nestedvi.inference.search import search, unfinished
from nestedvi.smc.tempering import Plan

pytestmark = pytest.mark.slow

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


def place(key, log_gamma, dim, prior=None):
    """Mean and spread of what a search finds, and what it says against itself."""
    names = tuple(f"slope[{i}]" for i in range(dim))
    request = Request(nvi.Density(log_gamma), dim, prior=prior, names=names)
    target, run = search(key, request, 1000, Plan(0.6, 3, draws=4))
    z = np.asarray(target.map(run.z))
    return z.mean(axis=0), z.std(axis=0), unfinished(run)


@pytest.mark.parametrize("case", IMPROPER)
def test_mass_that_runs_away_is_seen(case, key):
    dim, coordinate, log_gamma = IMPROPER[case]
    with pytest.raises(RunawayError, match="log Z runs away") as error:
        place(key, log_gamma, dim)
    # Both ends of the ridge run away together.
    assert f"along slope[{coordinate}] (width" in str(error.value) or "ridge" in case
    before, after = re.search(r"width (\S+), then (\S+) and", str(error.value)).groups()
    assert float(after) > 30 * float(before)


@pytest.mark.parametrize("case", PROPER)
def test_wide_is_not_improper(case, key):
    """The spread is right to a half, enough for a sampler to start from, also where the first
    search was far too narrow.
    """
    dim, spread, log_gamma = PROPER[case]
    _, found, said = place(key, log_gamma, dim)
    assert said == () and (abs(found / spread - 1) < 0.5).all(), found


def test_a_cauchy_is_proper(key):
    assert np.isfinite(place(key, lambda z: -jnp.sum(jnp.log1p(z**2)), 2)[1]).all()


def test_a_collapse_is_not_called_no_mass(key):
    with pytest.raises(
        nvi.errors.DensityError, match=r"all particles on one point.*grows without bound"
    ):
        place(key, lambda z: 0.1 * jnp.sum(z**2), 2)


def test_the_prior_says_where_to_look(key):
    """exp(−((z − 500)/0.01)²/2) with a prior of its own place and size."""

    def prior(key, num):
        return 500 + 0.02 * jax.random.normal(key, (num, 1))

    mean, spread, _ = place(key, lambda z: -0.5 * ((z[0] - 500) / 0.01) ** 2, 1, prior)
    assert abs(mean[0] - 500) < 0.005 and 0.008 < spread[0] < 0.012
    with pytest.raises(nvi.errors.DensityError, match=r"around draws of the prior.*Check the data"):
        place(key, lambda z: jnp.nan * z[0], 1, prior)


def test_the_search_finds_place_and_size(key):
    """Mean and spread of the target, to a fifth: good enough to start learning from."""
    loc, scale = np.array([3.0, -20.0, 0.5]), np.array([0.1, 4.0, 1.0])
    mean, spread, said = place(key, lambda z: -0.5 * jnp.sum(((z - loc) / scale) ** 2), 3)
    assert (
        said == ()
        and (abs(mean - loc) < 0.2 * scale).all()
        and (abs(spread / scale - 1) < 0.2).all()
    ), (mean, spread)
