"""`auto` and `smc` on targets whose log Z is known, from a log density and from a NumPyro model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.evaluate.answer import Request
from nestedvi.evaluate.auto import _spread, freeze
from nestedvi.evaluate.baseline import answer_smc
from nestedvi.evaluate.smc import MAX_LEVELS, Plan, tempering

pytestmark = pytest.mark.slow

MODES = jnp.array([[-4.0, 3.0], [5.0, 0.0], [0.0, -6.0]])
SHARES = jnp.array([0.5, 0.3, 0.2])


def three_modes(z):
    """Unequal modes of unit width; log Z = log 2π + log 7."""
    return jax.nn.logsumexp(jnp.log(7 * SHARES) - 0.5 * jnp.sum((z - MODES) ** 2, axis=1))


LOG_Z = float(np.log(2 * np.pi) + np.log(7))


@pytest.fixture(scope="module")
def posterior():
    return nvi.sample(three_modes, jax.random.key(1), dim=2, num_particles=1000)


def test_auto_finds_log_Z_and_every_mode(posterior):
    assert abs(posterior.log_Z - LOG_Z) < 5 * posterior.log_Z_stderr and posterior.log_Z_stderr < 0.02
    weights = np.exp(posterior.log_weights - jax.nn.logsumexp(posterior.log_weights))
    nearest = np.argmin(np.linalg.norm(np.asarray(posterior.samples)[:, None] - np.asarray(MODES), axis=2), axis=1)
    shares = np.bincount(nearest, weights, minlength=3)
    assert np.all(np.abs(shares - np.asarray(SHARES)) < 5 * np.sqrt(0.25 / posterior.ess))
    assert posterior.diagnosis == () and posterior.khat < 0.7 and posterior.ess > 800


def test_smc_finds_log_Z_without_learning():
    answer = answer_smc(jax.random.key(1), Request(Density(three_modes), 2))
    assert abs(answer.log_Z - LOG_Z) < 5 * max(answer.log_Z_stderr, 0.03)
    assert answer.cost.learning == 0 and answer.cost.sampling > 0 and answer.diagnosis == ()


def test_a_run_counts_its_gradients_and_freezes_into_a_sampler():
    base = nvi.DiagonalNormal(jnp.zeros(2), 6.0)
    plan = Plan(ess_share=0.5, moves=2, extra=1, leaps=3)
    found = tempering(jax.random.key(2), base, Density(three_modes), plan, num_particles=500)
    assert int(found.gradients) == 2 * (int(found.num_levels) + 1) * 4 + 1 and float(found.beta) == 1.0
    assert found.history.shape == (2, 500, 2)
    np.testing.assert_array_equal(found.history[-1], found.z)
    sampler = freeze(base, Density(three_modes), found, 6)
    betas = np.asarray(sampler.path.thetas())
    assert sampler.num_levels == 6 and betas[-1] == 1 and np.all(np.diff(betas) > 0)
    # From β = 0 in small steps: the first is shorter than the run's.
    assert 0 < betas[0] < float(found.betas[0])


def test_hot_temperatures_get_twice_the_moves_and_ratios_are_kept():
    """`log_ratios` are of draws from the base, then of each temperature's particles: their means rise with β, as A'(β) does."""
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 6.0), Density(three_modes)
    found = tempering(jax.random.key(6), base, target, Plan(0.7, 2, leaps=3, hot=2), num_particles=1000)
    num = int(found.num_levels)
    assert num > 3 and int(found.gradients) == 2 * (num + 2) * 4 + 1
    means = np.asarray(found.log_ratios).mean(axis=1)
    assert np.all(np.diff(means[: num + 1]) > 0) and np.all(means[num + 1 :] == 0)


@pytest.mark.parametrize("width, direct", [(1.1, True), (2.0, False)])
def test_a_base_that_is_nearly_the_target_needs_no_temperatures(width, direct):
    """Importance sampling of N(0, I) from N(0, s² I) keeps (2 s² − 1) / s⁴ of the draws, in two dimensions."""
    base, target = nvi.DiagonalNormal(jnp.zeros(2), width), Density(lambda z: -0.5 * jnp.sum(z**2))
    found = tempering(jax.random.key(5), base, target, Plan(0.3, 1, leaps=2, draws=16), num_particles=1000)
    np.testing.assert_allclose(float(found.base_share), (2 * width**2 - 1) / width**4, atol=0.02)
    betas = np.asarray(freeze(base, target, found, 5).path.thetas())
    # Learned ones rise as the precisions do in closed form, β + (1 − β)/s² geometrically.
    best = (width ** (2 * np.arange(1, 6) / 5) - 1) / (width**2 - 1)
    np.testing.assert_allclose(betas, np.ones(5) if direct else best, atol=0.05)


def test_a_run_that_stopped_early_or_crept_still_freezes():
    """The last density is the target, and temperatures rise in single precision, whatever the adaptive run did."""
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 2.0), Density(lambda z: -0.5 * jnp.sum(z**2))
    found = tempering(jax.random.key(5), base, target, Plan(0.3, 1, leaps=2), num_particles=100)
    crept = 0.9 + 1e-7 * jnp.arange(MAX_LEVELS)
    found = found._replace(betas=crept, num_levels=jnp.asarray(MAX_LEVELS), beta=crept[-1], base_share=jnp.asarray(0.1))
    betas = np.asarray(freeze(base, target, found, 50).path.thetas())
    assert betas[-1] == 1 and np.all(np.diff(betas) > 0) and betas[0] > 0


def test_temperatures_end_at_one_in_double_precision(x64):
    """A last step of the run that is cut off: rounding must not leave the schedule short of the target."""
    for last in np.linspace(0.61, 0.99, 20):
        visited = np.array([0.1, 0.3, last, 1.0])
        betas = _spread(visited, 25)
        assert betas[-1] == 1.0 and betas[0] == 0.0 and np.all(np.diff(betas) > 0)


def test_few_particles_still_leave_some_to_fit():
    """`sample` takes 20 particles: a seventh of them is held out, not all."""
    posterior = nvi.sample(three_modes, jax.random.key(0), dim=2, num_particles=20)
    assert abs(posterior.log_Z - LOG_Z) < 5 * max(posterior.log_Z_stderr, 0.1)


def test_smc_says_when_batches_are_too_small_to_be_tuned_from():
    answer = answer_smc(jax.random.key(1), Request(Density(lambda z: -0.5 * jnp.sum((z - 1) ** 2)), 30, num_particles=40))
    assert any("too few for 30 dimensions" in sentence for sentence in answer.diagnosis)


def test_more_draws_reach_further_at_once():
    """Eight draws for each particle: the first temperature is higher, and fewer particles share a draw."""
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 6.0), Density(three_modes)
    few, many = (
        tempering(jax.random.key(4), base, target, Plan(0.9, 1, leaps=2, draws=draws), num_particles=300) for draws in (1, 8)
    )
    assert float(many.betas[0]) > 2 * float(few.betas[0]) and int(many.num_levels) < int(few.num_levels)
    assert int(many.gradients) == 3 * int(many.num_levels) + 8


@pytest.mark.parametrize("draws", [1, 5])
def test_the_first_temperatures_estimate_is_unbiased(draws):
    """One temperature (ESS allows β = 1 at once): E[Ẑ] = Z, over 200 runs, within five standard errors."""
    base, target = nvi.DiagonalNormal(jnp.zeros(1), 2.0), Density(lambda z: -0.5 * jnp.sum(z**2))
    plan = Plan(ess_share=0.01, moves=1, leaps=2, draws=draws)
    run = jax.vmap(lambda k: tempering(k, base, target, plan, num_particles=50).log_Z_hat)
    Z_hat = np.exp(np.asarray(run(jax.random.split(jax.random.key(3), 200))))
    assert abs(Z_hat.mean() - np.sqrt(2 * np.pi)) < 5 * Z_hat.std() / np.sqrt(200)
