"""Moves leave a density as it is, take its shape from the particles, and say what they ask for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.smc.moves import RandomWalkMove, SliceMove
from nestedvi.smc.population import HamiltonianMove

ROOT = np.array([[1.2, 0.0], [0.5, 0.7]])
NAMES = ["hmc", "walk", "slice"]


def log_gamma(z):
    return -0.5 * jnp.sum(jnp.linalg.solve(jnp.asarray(ROOT, z.dtype), z) ** 2)


@pytest.mark.parametrize("move", [HamiltonianMove(3), RandomWalkMove(3), SliceMove(3)], ids=NAMES)
def test_exact_draws_stay_exact(move, x64):
    """Second moments of 20 000 exact draws after a move, within five standard errors."""
    num = 20_000
    z = jax.random.normal(jax.random.key(0), (num, 2)) @ ROOT.T
    noise = move.noise(np.random.default_rng(1), num, 2, z.dtype)
    size, root = jnp.asarray(0.7), jnp.asarray([[1.0, 0.0], [-0.3, 0.8]])
    moved = jax.jit(jax.vmap(lambda n, z: move(n, z, log_gamma, size, root)))(noise, z)
    assert 0.2 < jnp.mean(moved.acceptance) <= 1 and jnp.mean(moved.z != z) > 0.3
    products = np.asarray(moved.z[:, :, None] * moved.z[:, None, :])
    error = products.std(axis=0) / num**0.5
    assert (np.abs(products.mean(axis=0) - ROOT @ ROOT.T) < 5 * error).all()


def test_costs_are_what_a_move_asks_for():
    assert (HamiltonianMove(7).gradients, HamiltonianMove(7).values) == (8, 0)
    assert (RandomWalkMove(4).gradients, RandomWalkMove(4).values) == (0, 5)
    # A step asks twice, since half of the tries are taken; once more where it begins.
    assert (SliceMove(4).gradients, SliceMove(4).values) == (0, 9)


@pytest.mark.parametrize("move", [HamiltonianMove(), RandomWalkMove(), SliceMove()], ids=NAMES)
def test_the_metric_is_of_the_particles(move):
    z = np.random.default_rng(0).normal(size=(5000, 2)) @ ROOT.T
    root = move.root(z)
    shape = root @ root.T / (ROOT @ ROOT.T)
    np.testing.assert_allclose(shape / shape.mean(), 1.0, atol=0.15)
