"""Nested sampling: thresholds that rise, an estimate that is unbiased whatever the moves are, and
narrow parts that temperatures pass by.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.smc.moves import SliceMove
from nestedvi.smc.nested_sampling import (
    NestedPlan,
    Thresholds,
    _Shells,
    follow_thresholds,
    log_above,
    nested_sampling,
)
from nestedvi.smc.tempering import Plan, follow, tempering
from tests.helpers.spike import spike_in_slab, well_in_slab
from tests.helpers.three_modes import LOG_Z, MODES, SHARES, three_modes

BASE = nvi.DiagonalNormal(jnp.zeros(1), 2.0)
# log γ − log q_1 = log(2 √2π) − ⅜ z²: above ℓ within a known distance, with a known share of q_1.
TARGET = Density(lambda z: -0.5 * jnp.sum(z**2))
BATCHES = 500
TOP = float(np.log(2 * np.sqrt(2 * np.pi)))


def given(*thresholds, moves=1, width=1.0, dim=1):
    num = len(thresholds)
    return Thresholds(np.array(thresholds), moves, np.full(num, width), [np.eye(dim)] * num)


def test_the_density_above_a_threshold():
    values = [float(log_above(1.0, lambda: -2.0, x)) for x in (-0.9, -1.0, 0)]
    assert values == [-2.0, -np.inf, -2.0]
    assert float(log_above(1.0, lambda: -2.0, jnp.nan)) == -np.inf


@pytest.mark.parametrize(
    "num, draws, width", [(2, 1, 1.0), (8, 1, 1e-3), (8, 4, 1.0)], ids=["two", "stiff", "drawn"]
)
def test_the_estimate_is_unbiased_with_any_moves(num, draws, width):
    """E[Ẑ] = √(2π) over 500 batches, within four standard errors: of two particles, which are
    often lost altogether; with moves that lead nowhere; with more draws than particles.
    """
    tuned = given(TOP - 1.5, TOP - 0.4, TOP - 0.1, width=width)
    run = follow_thresholds(
        jax.random.key(num + draws),
        BASE,
        TARGET,
        tuned,
        num_particles=BATCHES * num,
        batches=BATCHES,
        draws=draws,
    )
    Z_hat = np.exp(run.log_Z_hats)
    assert abs(Z_hat.mean() - np.sqrt(2 * np.pi)) < 4 * Z_hat.std() / np.sqrt(BATCHES)
    # Particles of a batch stand for its Ẑ: they give ∫ z² γ without bias too.
    moment = Z_hat * np.mean(run.z.reshape(BATCHES, num) ** 2, axis=1)
    assert abs(moment.mean() - np.sqrt(2 * np.pi)) < 4 * moment.std() / np.sqrt(BATCHES)
    lost = np.mean(np.any(run.shares == 0, axis=0))
    assert num > 2 or lost > 0.2


def test_shares_are_those_of_the_base():
    """P(|z| < r) under q_1 for the distance r at which a threshold is, by the normal CDF."""
    thresholds = (TOP - 1.5, TOP - 0.375)
    run = follow_thresholds(
        jax.random.key(0), BASE, TARGET, given(*thresholds, moves=3), num_particles=8000, batches=2
    )
    inside = [float(2 * jax.scipy.stats.norm.cdf(r / 2) - 1) for r in (2.0, 1.0)]
    expected = [inside[0], inside[1] / inside[0]]
    np.testing.assert_allclose(run.shares.mean(axis=1), expected, atol=4 * 0.5 / np.sqrt(8000))
    np.testing.assert_allclose(run.log_Z_hat, 0.5 * np.log(2 * np.pi), atol=0.03)


def test_a_run_finds_its_thresholds():
    plan = NestedPlan(share=0.5, draws=4, left=1e-4)
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 6.0), Density(three_modes)
    run = nested_sampling(jax.random.key(0), base, target, plan, num_particles=1000)
    assert np.all(np.diff(run.tuned.thresholds) > 0) and run.left < 1e-4
    # A quarter of the draws go on, then half of the particles.
    np.testing.assert_allclose(run.shares[:, 0], [0.25, *[0.5] * (run.num_levels - 1)], atol=0.02)
    assert len(run.tuned.widths) == len(run.tuned.roots) == run.num_levels
    assert run.values == 4 + run.num_levels * (1 + SliceMove().values * run.tuned.moves)
    fresh = follow_thresholds(
        jax.random.key(1), base, target, run.tuned, num_particles=2000, batches=10, draws=4
    )
    error = np.std(np.exp(fresh.log_Z_hats - LOG_Z), ddof=1) / np.sqrt(10)
    assert abs(fresh.log_Z_hat - LOG_Z) < 4 * error < 0.3
    nearest = np.argmin(np.linalg.norm(fresh.z[:, None] - MODES, axis=2), axis=1)
    shares = np.bincount(nearest, minlength=3) / 2000
    assert np.all(np.abs(shares - SHARES) < 5 * np.sqrt(0.25 / fresh.origins.sum()))
    assert fresh.z.shape == (2000, 2) and np.all(fresh.origins <= 200)


def test_weights_that_are_all_equal_need_no_threshold():
    """The base is the target but for a constant."""
    base = nvi.DiagonalNormal(jnp.zeros(2), 1.0)
    run = nested_sampling(
        jax.random.key(0),
        base,
        Density(lambda z: jnp.where(jnp.all(jnp.abs(z) < 50), base.log_gamma(z) + 3.0, 0.0)),
        NestedPlan(draws=1),
        num_particles=100,
    )
    np.testing.assert_allclose(run.log_Z_hat, 3.0, atol=1e-4)
    assert run.num_levels < 25


def test_batches_of_one_size():
    with pytest.raises(ValueError, match="10 particles do not make 3 of them"):
        follow_thresholds(jax.random.key(0), BASE, TARGET, given(0.0), num_particles=10, batches=3)


def test_the_variance_of_two_shells_by_hand():
    """Four particles with weights 1, 2 | 4, 4 and two above with 4, 8: a particle stands for 1, 2,
    or the mean above, 6.
    """
    shells = _Shells(1)
    shells.levels = [(np.log([1.0, 2.0, 4.0, 4.0]), np.log(3.0)), (np.log([4.0, 8.0]), np.inf)]
    f = np.array([1.0, 2.0, 6.0, 6.0])
    first = f.var() / 4 / f.mean() ** 2
    above = np.var([4.0, 8.0]) / 2 / 36
    passed = 0.5 * 6 / f.mean()
    np.testing.assert_allclose(shells.variance(), first + passed**2 * above)


@pytest.mark.slow
def test_the_variance_of_log_Z_is_foretold():
    """Moves that mix well: the variance over 200 batches is what a run adds up to, within five
    standard errors.
    """
    base = nvi.DiagonalNormal(jnp.zeros(2), 3.0)
    target = Density(lambda z: -0.5 * jnp.sum(z**2))
    plan = NestedPlan(draws=1, slices=20)
    tuned = nested_sampling(jax.random.key(0), base, target, plan, num_particles=2000).tuned
    run = follow_thresholds(
        jax.random.key(1), base, target, tuned, num_particles=200 * 100, batches=200, piece=2000
    )
    seen = np.var(np.exp(run.log_Z_hats - run.log_Z_hat), ddof=1) / 200
    assert abs(seen / run.log_Z_variance - 1) < 5 * np.sqrt(2 / 199)


def compare(target, dim, seed):
    """log Ẑ and its standard error along thresholds and along temperatures from the wide base, with
    as many draws and particles.
    """
    base, keys = ScaleMixture(dim), jax.random.split(jax.random.key(seed), 4)
    some, many = {"num_particles": 1000, "piece": 500}, {"num_particles": 4000, "piece": 500}
    nested = nested_sampling(keys[0], base, target, NestedPlan(draws=16), **some).tuned
    tempered = tempering(keys[1], base, target, Plan(0.93, 4, draws=16), **some).tuned
    runs = [
        follow_thresholds(keys[2], base, target, nested, batches=10, draws=16, **many),
        follow(keys[3], base, target, tempered, batches=10, draws=16, resample_below=2.0, **many),
    ]
    return [
        (run.log_Z_hat, np.std(np.exp(run.log_Z_hats - run.log_Z_hat), ddof=1) / np.sqrt(10))
        for run in runs
    ]


@pytest.mark.slow
def test_a_spike_that_temperatures_pass_by():
    """Half of the mass in a spike of sd .15 in eight dimensions, one width from the slab's centre:
    temperatures find it in no batch or in a few, and are off by more than their error says or have
    one that is no use. Thresholds have log Z within their error, which is small.
    """
    target = spike_in_slab(8, sd=0.15, place=0.5)
    both = [compare(target, 8, seed) for seed in range(3)]
    for (nested, error), (tempered, tempered_error) in both:
        assert abs(nested) < 3.5 * error and error < 0.2
        assert abs(tempered) > 4 * tempered_error or tempered_error > 2 * error


@pytest.mark.slow
def test_a_well_that_no_gradient_leads_to():
    """As much mass again in a ball that holds 10⁻³ of a Gaussian's: log Z is log 2."""
    target, _ = well_in_slab(4, place=0.5, volume=1e-3)
    both = [compare(target, 4, seed) for seed in range(3)]
    for (nested, error), _ in both:
        assert abs(nested - np.log(2)) < 3.5 * error < 0.5
