"""The sampler that an adaptive run is frozen into: its temperatures, and where it needs none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.inference.frozen import as_sampler, freeze, spread_betas
from nestedvi.smc.population import HamiltonianMove
from nestedvi.smc.tempering import MAX_LEVELS, Plan, Tuned, follow, tempering
from tests.helpers.three_modes import three_modes

pytestmark = pytest.mark.slow


def test_a_run_freezes_into_a_sampler():
    base = nvi.DiagonalNormal(jnp.zeros(2), 6.0)
    run = tempering(
        jax.random.key(2),
        base,
        Density(three_modes),
        Plan(ess_share=0.5, moves=2),
        move=HamiltonianMove(3),
        num_particles=500,
    )
    tuned = freeze(run, 6)
    betas = tuned.betas
    assert len(betas) == 6 and betas[-1] == 1 and np.all(np.diff(betas) > 0)
    assert tuned.moves == (0, 1, 1, 1, 1, 1)
    sampler = as_sampler(base, Density(three_modes), tuned)
    assert sampler.num_levels == 6
    np.testing.assert_allclose(sampler.path.thetas(), betas, rtol=1e-6)
    # From β = 0 in small steps: the first is shorter than the run's.
    assert 0 < betas[0] < float(run.betas[0])


@pytest.mark.parametrize("width, direct", [(1.1, True), (2.0, False)])
def test_a_base_that_is_nearly_the_target_needs_no_temperatures(width, direct):
    """Importance sampling of N(0, I) from N(0, s² I) keeps (2 s² − 1) / s⁴ of the draws, in two
    dimensions.
    """
    base, target = nvi.DiagonalNormal(jnp.zeros(2), width), Density(lambda z: -0.5 * jnp.sum(z**2))
    run = tempering(
        jax.random.key(5),
        base,
        target,
        Plan(0.3, 1, draws=16),
        num_particles=1000,
        move=HamiltonianMove(2),
    )
    np.testing.assert_allclose(float(run.base_share), (2 * width**2 - 1) / width**4, atol=0.02)
    betas = freeze(run, 5).betas
    # Learned ones rise as the precisions do in closed form, β + (1 − β)/s² geometrically.
    best = (width ** (2 * np.arange(1, 6) / 5) - 1) / (width**2 - 1)
    np.testing.assert_allclose(betas, np.ones(5) if direct else best, atol=0.05)
    # Unless steps are asked for.
    steps = freeze(run, 5, in_steps=True).betas
    assert steps[0] < 1 and steps[-1] == 1 and np.all(np.diff(steps) > 0)


def test_a_run_that_stopped_early_or_crept_still_freezes():
    """The last density is the target, and temperatures rise in single precision, whatever the
    adaptive run did.
    """
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 2.0), Density(lambda z: -0.5 * jnp.sum(z**2))
    run = tempering(
        jax.random.key(5), base, target, Plan(0.3, 1), num_particles=100, move=HamiltonianMove(2)
    )
    crept = 0.9 + 1e-7 * np.arange(MAX_LEVELS)
    run = run._replace(
        tuned=Tuned(
            crept,
            (1,) * MAX_LEVELS,
            np.full(MAX_LEVELS, run.step_size),
            (run.root,) * MAX_LEVELS,
        ),
        log_ratios=np.repeat(run.log_ratios[:1], MAX_LEVELS + 1, axis=0),
        base_share=0.1,
    )
    betas = freeze(run, 50).betas
    assert betas[-1] == 1 and np.all(np.diff(betas) > 0) and betas[0] > 0


def test_temperatures_end_at_one_in_double_precision(x64):
    """A last step of the run that is cut off: rounding must not leave the schedule short of the
    target.
    """
    for last in np.linspace(0.61, 0.99, 20):
        visited = np.array([0.1, 0.3, last, 1.0])
        betas = spread_betas(visited, 25)
        assert betas[-1] == 1.0 and betas[0] == 0.0 and np.all(np.diff(betas) > 0)


def test_following_and_the_nested_sampler_agree():
    """Both are unbiased for the same target: their mean Ẑ over 300 batches, within five standard
    errors of the closed form.
    """
    base, target = nvi.DiagonalNormal(jnp.zeros(2), 2.0), Density(lambda z: -0.5 * jnp.sum(z**2))
    run = tempering(jax.random.key(5), base, target, Plan(0.3, 1), num_particles=200)
    tuned = freeze(run._replace(base_share=0.1), 4)
    followed = follow(jax.random.key(6), base, target, tuned, num_particles=3000, batches=300)
    sampler = as_sampler(base, target, tuned)
    runs = jax.vmap(lambda k: nvi.run(k, sampler, 10))(jax.random.split(jax.random.key(7), 300))
    for log_Z_hats in (followed.log_Z_hats, np.asarray(runs.log_Z_hat)):
        Z_hat = np.exp(np.asarray(log_Z_hats, np.float64)) / (2 * np.pi)
        assert abs(Z_hat.mean() - 1) < 5 * Z_hat.std() / 300**0.5
