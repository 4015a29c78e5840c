"""Finding the mass of a density, and telling one without a finite normaliser from one that is merely wide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.evaluate.locate import locate
from nestedvi.evaluate.runaway import RunawayError

pytestmark = pytest.mark.slow

IMPROPER = {
    "flat in one of ten": (10, 0, lambda z: -0.5 * jnp.sum(z[1:] ** 2)),
    "flat along a narrow ridge": (3, 0, lambda z: -50 * (z[0] + z[1]) ** 2 - 0.5 * z[2] ** 2),
    "flat to one side": (1, 0, lambda z: -jnp.exp(z[0])),
    "growing": (2, 1, lambda z: z[1] - 0.5 * z[0] ** 2),
}
PROPER = {
    "one wide direction of ten": (10, [3000.0] + [1.0] * 9, lambda z: -0.5 * jnp.sum(z[1:] ** 2) - 0.5 * (z[0] / 3000) ** 2),
    "narrow ridge": (2, [10.0, 10.0], lambda z: -50 * (z[0] + z[1]) ** 2 - 0.5 * (z[0] / 10) ** 2),
    "two far modes": (1, [50.0], lambda z: jnp.logaddexp(-0.5 * (z[0] - 50) ** 2, -0.5 * (z[0] + 50) ** 2)),
}


@pytest.mark.parametrize("case", IMPROPER)
def test_mass_that_runs_away_is_seen(case, key):
    dim, coordinate, log_gamma = IMPROPER[case]
    with pytest.raises(RunawayError, match="log Z runs away") as error:
        locate(key, nvi.Density(log_gamma), dim)
    # Both ends of the ridge run away together.
    assert error.value.coordinate == coordinate or "ridge" in case
    assert error.value.after > 30 * error.value.before
    assert "along slope[1] (width" in str(error.value.named("slope[1]"))


@pytest.mark.parametrize("case", PROPER)
def test_wide_is_not_improper(case, key):
    """The spread is right to a half, enough for a sampler to start from, also where the first search was far too narrow."""
    dim, spread, log_gamma = PROPER[case]
    place, doubts = locate(key, nvi.Density(log_gamma), dim)
    assert doubts == ()
    assert (abs(np.asarray(place.spread) / spread - 1) < 0.5).all(), place.spread


def test_a_cauchy_is_proper(key):
    place, _ = locate(key, nvi.Density(lambda z: -jnp.sum(jnp.log1p(z**2))), 2)
    assert np.isfinite(np.asarray(place.spread)).all()


def test_a_collapse_is_not_called_no_mass(key):
    with pytest.raises(nvi.DensityError, match=r"all particles on one point.*grows without bound"):
        locate(key, nvi.Density(lambda z: 0.1 * jnp.sum(z**2)), 2)


def test_the_prior_says_where_to_look(key):
    """exp(−((z − 500)/0.01)²/2) with a prior of its own place and size."""
    prior = lambda key, num: 500 + 0.02 * jax.random.normal(key, (num, 1))  # noqa: E731
    place, _ = locate(key, nvi.Density(lambda z: -0.5 * ((z[0] - 500) / 0.01) ** 2), 1, prior)
    assert abs(float(place.mean[0]) - 500) < 0.005 and 0.008 < float(place.spread[0]) < 0.012
    with pytest.raises(nvi.DensityError, match=r"around draws of the prior.*Check the data"):
        locate(key, nvi.Density(lambda z: jnp.nan * z[0]), 1, prior)
