"""First-order transitions: seen where log ratios are two groups, not seen where they are one, and
passed by thresholds.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.particles.weights import two_groups
from nestedvi.smc.population import HamiltonianMove
from nestedvi.smc.tempering import Plan, find_transition, tempering
from nestedvi.smc.transitions import past_transition
from tests.helpers.spike import spike_in_slab

RNG = np.random.default_rng(0)
ONE_GROUP = {
    "a Gaussian": RNG.normal(size=2000) * 30,
    "a chi-square": -RNG.chisquare(4, size=2000) * 5,
    "a skew one": RNG.exponential(size=2000) * 10,
    "heavy tails": RNG.standard_t(2, size=2000) * 10,
    "even": RNG.uniform(size=2000) * 50,
    "next to nothing": RNG.normal(size=2000) * 1e-9,
    "all the same": np.zeros(2000),
    "a few": RNG.normal(size=3) * 100,
}


@pytest.fixture(scope="module")
def run():
    """A short run with a Gaussian target."""
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 3.0), Density(lambda z: -0.5 * jnp.sum(z**2))
    plan, move = Plan(0.5, 1), HamiltonianMove(2)
    return tempering(jax.random.key(0), base, target, plan, num_particles=200, move=move)


def with_ratios(run, *rows):
    """The run with other log ratios: of draws from the base, and at temperatures up to 1."""
    betas = np.linspace(0, 1, len(rows))[1:]
    return run._replace(tuned=run.tuned._replace(betas=betas), log_ratios=np.array(rows))


@pytest.mark.parametrize("name", ONE_GROUP)
def test_one_group_is_no_transition(name, run):
    ratios = ONE_GROUP[name]
    assert find_transition(with_ratios(run, ratios, ratios, ratios)) is None


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_two_groups_are_one(share, run):
    """The gap and the share of the higher group, at the temperature where they are furthest
    apart.
    """
    rng = np.random.default_rng(1)
    one = rng.normal(size=1000)
    two = one + 14.0 * (np.arange(1000) < 1000 * share)
    wide = 2 * one + 14.0 * (np.arange(1000) < 1000 * share)
    found = find_transition(with_ratios(run, one, one, two, wide))
    assert found.beta == pytest.approx(2 / 3) and found.share == pytest.approx(share)
    assert abs(found.gap - 14) < 5 * np.sqrt(2 / (1000 * min(share, 1 - share)))
    assert abs(found.apart - 7) < 1


def test_groups_of_draws_and_at_high_temperatures_are_the_bases_own(run):
    two = RNG.normal(size=1000) + 20.0 * (np.arange(1000) < 500)
    one = RNG.normal(size=1000)
    assert find_transition(with_ratios(run, two, one, one)) is None
    # Eleven temperatures: 1/11 is below a tenth.
    assert find_transition(with_ratios(run, one, two, *[one] * 10)) is None
    assert find_transition(with_ratios(run, one, one, two, *[one] * 9)) is not None


def test_places_without_mass_are_no_group():
    ratios = np.concatenate([RNG.normal(size=500), np.full(500, -1e30)])
    gap, apart, _ = two_groups(ratios)
    assert gap < 2 and apart < 1.6


def test_a_run_without_a_transition_is_returned_as_it_is(run):
    base = nvi.DiagonalNormal(jnp.zeros(2), 3.0)
    target = Density(lambda z: -0.5 * jnp.sum(z**2))
    assert find_transition(run) is None
    assert past_transition(jax.random.key(1), base, target, run) is run


@pytest.mark.slow
def test_thresholds_find_what_temperatures_left_to_chance():
    """Half of the mass in a spike, which 500 tempered particles find by chance. With as many along
    thresholds the estimate is the mean of both, and its particles are in both parts.
    """
    dim, num = 8, 500
    target, base = spike_in_slab(dim, sd=0.2, place=0.5), ScaleMixture(dim)
    run = tempering(jax.random.key(0), base, target, Plan(0.7, 3, draws=16), num_particles=num)
    found = find_transition(run)
    assert found is not None and found.gap > 8
    both = past_transition(jax.random.key(1), base, target, run, piece=250)
    assert both.z.shape == (num, dim) and both.log_ratios.shape == run.log_ratios.shape
    assert abs(both.log_Z_hat) < abs(run.log_Z_hat) and abs(both.log_Z_hat) < 0.3
    inside = np.mean(np.linalg.norm(both.z - 0.5, axis=1) < 1)
    assert 0.25 < inside < 0.75
    expected = [float(target.log_gamma(jnp.asarray(z))) for z in both.z[:5]]
    base_there = np.asarray(base.log_prob_many(both.z[:5]))
    np.testing.assert_allclose(both.log_ratios[-1][:5], expected - base_there, atol=1e-3)
    assert both.values > run.values and both.log_Z_variance > 0
