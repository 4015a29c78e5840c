"""Learned temperatures against Gaussians, whose path, divergences and best schedule are known in
closed form.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.fitting.temperatures import PathPotential, learn_betas

DIM, WIDTH = 2, 4.0


def precision(beta):
    """π_β is N(0, I / precision) between N(0, s² I) and N(0, I)."""
    return (1 - beta) / WIDTH**2 + beta


def divergences(betas):
    """KL(π_k ‖ π_{k-1}) of Gaussians."""
    ratio = precision(betas[:-1]) / precision(betas[1:])
    return 0.5 * DIM * (ratio - 1 - np.log(ratio))


def log_ratio(z):
    """log γ − log q_1, γ without its normaliser."""
    return (
        -0.5 * jnp.sum(z**2, -1) * (1 - WIDTH**-2)
        + DIM * jnp.log(WIDTH)
        + 0.5 * DIM * jnp.log(2 * jnp.pi)
    )


@pytest.fixture(scope="module")
def particles():
    """20 000 exact draws at three temperatures."""
    nodes = jnp.array([0.0, 0.1, 0.4, jnp.inf])
    noise = jax.random.normal(jax.random.key(0), (4, 20_000, DIM))
    z = noise / jnp.sqrt(jnp.where(jnp.isfinite(nodes), precision(nodes), 1.0))[:, None, None]
    return nodes, log_ratio(z)


def test_heights_slopes_and_divergences_are_the_gaussians(particles):
    """log Z(β) and its slope between the temperatures that were visited and beyond the last, within
    five standard errors.
    """
    potential, offset = PathPotential(*particles), float(jnp.max(particles[1][0]))
    for beta in (0.03, 0.1, 0.25, 0.4, 0.7, 1.0):
        height, slope = (float(x) for x in potential(jnp.asarray(beta)))
        # ∫ q^{1-β} γ^β with q normalised and γ = exp(−|z|²/2).
        want = (
            0.5
            * DIM
            * (beta * np.log(2 * np.pi) - (1 - beta) * np.log(WIDTH**2) - np.log(precision(beta)))
            - beta * offset
        )
        # A' has variance A''(β) a particle, of which at least a quarter counts after weighting;
        # errors of A are their integrals.
        spread = np.sqrt(0.5 * DIM) * (1 - WIDTH**-2) / precision(beta)
        error = 5 * spread * np.sqrt(4 / particles[1].shape[1])
        at_zero = np.sqrt(0.5 * DIM) * (1 - WIDTH**-2) / precision(0)
        assert abs(height - want) < 5 * at_zero * min(beta, 0.1) * np.sqrt(
            4 / particles[1].shape[1]
        ) + error * max(beta - 0.1, 0)
        assert (
            abs(
                slope
                - (
                    0.5 * DIM * (np.log(2 * np.pi * WIDTH**2) - (1 - WIDTH**-2) / precision(beta))
                    - offset
                )
            )
            < error
        )
    betas = jnp.array([0.0, 0.05, 0.2, 0.6, 1.0])
    np.testing.assert_allclose(
        potential.divergences(betas), divergences(np.asarray(betas, np.float64)), atol=0.02
    )


def test_learned_temperatures_are_the_best_ones(particles):
    """The sum of the Gaussians' divergences is least where precisions rise geometrically."""
    schedule = learn_betas(nvi.LearnedSchedule(5), PathPotential(*particles))
    betas = np.asarray(schedule.betas(), np.float64)
    best = (WIDTH ** (2 * np.arange(5) / 4) - 1) / (WIDTH**2 - 1)
    np.testing.assert_allclose(betas, best, atol=0.02)
    assert (
        divergences(betas).sum()
        < 1.02 * divergences(best).sum()
        < 0.8 * divergences(np.linspace(0, 1, 5)).sum()
    )


def test_draws_of_weight_zero_do_no_harm(particles):
    """A base draws also where the target has no mass: gradients stay numbers, and temperatures are
    learned all the same.
    """
    nodes, ratios = particles
    ratios = ratios.at[0, ::5].set(-1e30)
    start, potential = (
        nvi.LearnedSchedule(5, [0.0, 0.05, 0.1, 0.4, 1.0]),
        PathPotential(nodes, ratios),
    )

    def total(schedule):
        return jnp.sum(potential.divergences(schedule.betas()))

    assert np.all(np.isfinite(eqx.filter_grad(total)(start).logits))
    learned = learn_betas(start, potential)
    assert np.all(np.diff(np.asarray(learned.betas())) > 0) and float(total(learned)) < float(
        total(start)
    )


def test_a_constant_in_the_density_changes_nothing(particles):
    nodes, ratios = particles
    betas = jnp.linspace(0, 1, 5)
    plain, shifted = (PathPotential(nodes, ratios + c).divergences(betas) for c in (0.0, 4096.0))
    np.testing.assert_allclose(plain, shifted, rtol=1e-2)
