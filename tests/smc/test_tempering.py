"""Tempered runs: their guides, what they count, how far draws reach, and what they say of their own
error.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.densities.mixtures import CorrelatedMixture
from nestedvi.particles.weights import next_beta
from nestedvi.smc.population import HamiltonianMove, Population
from nestedvi.smc.tempering import (
    Adapting,
    Following,
    Plan,
    follow,
    log_tempered,
    tempering,
)
from tests.helpers.three_modes import LOG_Z, three_modes

SHORT = HamiltonianMove(3)


@pytest.mark.slow
def test_a_run_counts_its_gradients():
    base = nvi.DiagonalNormal(jnp.zeros(2), 6.0)
    plan = Plan(ess_share=0.5, moves=2, extra=1)
    run = tempering(
        jax.random.key(2), base, Density(three_modes), plan, num_particles=500, move=SHORT
    )
    num = int(run.num_levels)
    assert (
        int(run.gradients) == 2 * (num + 1) * 4
        and int(run.values) == 1 + num + 1
        and float(run.beta) == 1.0
    )
    assert run.history.shape == (2, 500, 2)
    np.testing.assert_array_equal(run.history[-1], run.z)


@pytest.mark.slow
def test_hot_temperatures_get_twice_the_moves_and_ratios_are_kept():
    """`log_ratios` are of draws from the base, then of each temperature's particles: their means
    rise with β, as A'(β) does.
    """
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 6.0), Density(three_modes)
    run = tempering(
        jax.random.key(6), base, target, Plan(0.7, 2, hot=2), num_particles=1000, move=SHORT
    )
    num = int(run.num_levels)
    assert num > 3 and int(run.gradients) == 2 * (num + 2) * 4
    means = np.asarray(run.log_ratios).mean(axis=1)
    assert len(means) == num + 1 and np.all(np.diff(means) > 0)


@pytest.mark.slow
def test_more_draws_reach_further_at_once():
    """Eight draws for each particle: the first temperature is higher, and fewer particles share a
    draw.
    """
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 6.0), Density(three_modes)
    few, many = (
        tempering(
            jax.random.key(4),
            base,
            target,
            Plan(0.9, 1, draws=draws),
            num_particles=300,
            move=HamiltonianMove(2),
        )
        for draws in (1, 8)
    )
    assert float(many.betas[0]) > 2 * float(few.betas[0]) and int(many.num_levels) < int(
        few.num_levels
    )
    assert int(many.gradients) == 3 * int(many.num_levels) and int(many.values) == 8 + int(
        many.num_levels
    )
    assert few.origins.sum() < 0.7 * 300 and few.origins.sum() < many.origins.sum() <= 300


@pytest.mark.slow
@pytest.mark.parametrize("draws", [1, 5])
def test_the_first_temperatures_estimate_is_unbiased(draws):
    """One temperature (ESS allows β = 1 at once): E[Ẑ] = Z, over 200 runs, within five standard
    errors.
    """
    base, target = nvi.DiagonalNormal(jnp.zeros(1), 2.0), Density(lambda z: -0.5 * jnp.sum(z**2))
    plan, move = Plan(ess_share=0.01, moves=1, draws=draws), HamiltonianMove(2)
    runs = [
        tempering(k, base, target, plan, num_particles=50, move=move)
        for k in jax.random.split(jax.random.key(3), 200)
    ]
    Z_hat = np.exp([run.log_Z_hat for run in runs])
    assert abs(Z_hat.mean() - np.sqrt(2 * np.pi)) < 5 * Z_hat.std() / np.sqrt(200)


@pytest.mark.slow
def test_the_variance_of_log_Z_is_foretold():
    """Moves that mix well: the variance over 200 runs is what each run's weights add up to, within
    five standard errors.
    """
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 3.0), Density(lambda z: -0.5 * jnp.sum(z**2))
    plan, move = Plan(0.8, 3), HamiltonianMove(5)
    runs = [
        tempering(k, base, target, plan, num_particles=100, move=move)
        for k in jax.random.split(jax.random.key(7), 200)
    ]
    foretold = np.mean([run.log_Z_variance for run in runs])
    seen = np.var([run.log_Z_hat for run in runs], ddof=1)
    assert min(run.num_levels for run in runs) > 2
    assert abs(seen / foretold - 1) < 5 * np.sqrt(2 / 199)


@pytest.mark.slow
@pytest.mark.parametrize("width, share", [(1.0, 0.0), (0.003, 0.1)])
def test_particles_in_a_narrow_part_are_counted_as_stuck(width, share):
    """A tenth of the mass far narrower than the rest. Four of 256 particles have less than two
    moves of the tuned size.
    """
    places = jnp.array([[0.0, 0.0], [8.0, 0.0]])
    roots = jnp.stack([jnp.eye(2), width * jnp.eye(2)])
    target = CorrelatedMixture(places, roots, jnp.log(jnp.array([0.9, 0.1])))
    run = tempering(jax.random.key(8), target, target, Plan(0.5, 5), num_particles=2000)
    expected = share * (1 - 4 / 256)
    assert abs(float(run.stuck) - expected) < 5 * np.sqrt(expected * (1 - expected) / 2000) + 0.004


@pytest.mark.slow
def test_particles_that_follow_have_an_unbiased_estimate():
    """Three modes, a coarse run, batches of eight: E[Ẑ] over 400 batches within four standard
    errors, though one batch's log Ẑ is far too low on average.
    """
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 6.0), Density(three_modes)
    run = tempering(jax.random.key(6), base, target, Plan(0.5, 1), num_particles=500, move=SHORT)
    tempered = follow(
        jax.random.key(7), base, target, run.tuned, num_particles=3200, batches=400, move=SHORT
    )
    Z_hat = np.exp(tempered.log_Z_hats - LOG_Z)
    assert abs(Z_hat.mean() - 1) < 4 * Z_hat.std() / 20
    assert np.log(Z_hat).mean() < -0.05
    assert tempered.z.shape == (3200, 2) and tempered.log_w.shape == (400, 8)


@pytest.mark.slow
def test_pieces_change_nothing_but_their_noise():
    """Moves in pieces that do not divide the particles: no particle is lost, and the estimate is as
    good.
    """
    base, target = nvi.DiagonalNormal(jnp.zeros(1), 2.0), Density(lambda z: -0.5 * jnp.sum(z**2))
    plan = Plan(ess_share=0.9, moves=2, draws=4)
    for piece in (300, 128):
        run = tempering(
            jax.random.key(1), base, target, plan, num_particles=300, move=SHORT, piece=piece
        )
        assert run.z.shape == (300, 1) and run.log_ratios.shape[1] == 300
        error = 4 * (run.log_Z_variance + 1e-4) ** 0.5
        assert abs(run.log_Z_hat - 0.5 * np.log(2 * np.pi)) < error


@pytest.mark.slow
def test_batches_are_of_one_size(key):
    base = nvi.DiagonalNormal(jnp.zeros(1), 2.0)
    run = tempering(key, base, base, Plan(0.5, 1), num_particles=50, move=SHORT)
    with pytest.raises(ValueError, match="50 particles do not make 7"):
        follow(key, base, base, run.tuned, num_particles=50, batches=7, move=SHORT)


def test_densities_on_the_way_are_geometric_and_the_last_does_not_ask_for_the_base():
    def at(beta, log_base):
        there = jax.jit(lambda b: log_tempered(b, lambda: jnp.asarray(log_base), jnp.asarray(-2.0)))
        return float(there(beta))

    np.testing.assert_allclose([at(0.0, 4.0), at(0.25, 4.0)], [4.0, 0.75 * 4 - 0.25 * 2], rtol=1e-6)
    # A base that is no number there would show.
    assert at(1.0, np.nan) == -2.0 and np.isnan(at(0.5, np.nan))


def test_the_next_temperature_keeps_the_effective_sample_size():
    """Increments (β' − β) l have an ESS of the asked share, or β' = 1 if even that keeps more."""
    log_l = np.random.default_rng(0).normal(size=400) * 20
    beta = 0.1
    new = next_beta(beta, log_l, 0.5)
    w = np.exp(float(new - beta) * np.asarray(log_l))
    np.testing.assert_allclose(w.sum() ** 2 / (w**2).sum(), 200, rtol=1e-4)
    assert 0.1 < new < 1
    assert next_beta(beta, log_l / 1000, 0.5) == 1


def test_what_was_found_is_repeated():
    """Temperatures, numbers of moves, metrics and the sizes after each round, without looking."""
    rng, move = np.random.default_rng(1), HamiltonianMove()
    guide = Adapting(Plan(0.5, moves=2, extra=1, hot=1), move, None)
    beta, z = 0.0, rng.normal(size=(50, 2))
    while (new := guide.temperature(beta, 5 * rng.normal(size=50))) is not None:
        beta = new
        guide.learn(0.9 * guide.tune(beta, z)[1])
    tuned = guide.tuned()
    assert tuned.betas[-1] == 1 and np.all(np.diff(tuned.betas) > 0)
    assert tuned.moves[0] == 4 and set(tuned.moves[1:]) == {2}
    # The round after the last temperature counts for its size.
    np.testing.assert_allclose(np.diff(np.log(tuned.step_sizes))[-1], 2 * np.log(0.9))
    again, seen = Following(tuned, 0.5), []
    while (new := again.temperature(0.0, np.zeros(3))) is not None:
        seen.append((new, *again.tune(new, z)[:2]))
    expected = zip(tuned.betas, tuned.moves, tuned.step_sizes, strict=True)
    np.testing.assert_allclose(seen, list(expected))


@pytest.mark.parametrize(("own", "expected"), [(None, 3), (1, 1)])
def test_extra_rounds_may_have_a_number_of_moves_of_their_own(own, expected):
    """After the last temperature, and only then."""
    rng = np.random.default_rng(1)
    guide = Adapting(Plan(0.5, moves=3, extra=2, extra_moves=own), HamiltonianMove(), None)
    beta, z, counts = 0.0, rng.normal(size=(50, 2)), []
    while (new := guide.temperature(beta, 5 * rng.normal(size=50))) is not None:
        beta = new
        counts.append(guide.tune(beta, z)[0])
    assert set(counts[:-2]) == {3} and counts[-2:] == [expected] * 2
    assert set(guide.tuned().moves) == {3}


def test_draws_that_serve_come_instead_of_moves():
    """Two rounds of moves less and as many picks where the base is the target; none where it is far
    away.
    """
    base = nvi.DiagonalNormal(jnp.zeros(2), 1.0)
    plan = Plan(ess_share=0.5, moves=1, extra=3, draws=4, picks=2)
    run = tempering(jax.random.key(3), base, base, plan, num_particles=200, move=SHORT)
    assert run.picked.shape == (2, 200, 2) and run.history.shape == (2, 200, 2)
    np.testing.assert_allclose(run.picked.mean(axis=(0, 1)), 0.0, atol=5 / np.sqrt(400))
    far = nvi.DiagonalNormal(jnp.full(2, 4.0), 1.0)
    run = tempering(jax.random.key(3), far, base, plan, num_particles=200, move=SHORT)
    assert run.picked.shape == (0, 200, 2) and run.history.shape == (4, 200, 2)


def test_picks_are_in_proportion_to_weights():
    """Draws from N(0, 2²) for N(0, 1): the picks' second moment is one, and none of them is a
    particle that no draw made.
    """
    now = Population(
        nvi.DiagonalNormal(jnp.zeros(1), 2.0),
        nvi.DiagonalNormal(jnp.zeros(1), 1.0),
        SHORT,
        500,
        log_tempered,
    )
    now.draw(jax.random.key(4), 500, 1, 16)
    picks = now.pick(np.random.default_rng(0), 2, 500)
    square = picks.astype(np.float64) ** 2
    assert abs(square.mean() - 1) < 5 * square.std() / np.sqrt(1000)
    assert set(picks.reshape(-1)) <= set(now.z.reshape(-1))
