"""Proper weighting of a prepared path, exhaustively: the messages' table is made for every outcome
of the first level.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.sampler.run import prepare
from tests.helpers.enumeration import Branches, move_all, resample_all
from tests.helpers.finite_global import ETAS, STATES, log_targets, make_world

pytestmark = pytest.mark.usefixtures("x64")


@functools.cache
def first_moves():
    """Every η, with the probabilities of q(η)."""

    def moves(level, path, z_prev):
        etas = jnp.arange(ETAS)
        zeros = jnp.zeros(ETAS, jnp.int32)
        return (
            nvi.paths.Latent(etas, zeros, zeros),
            None,
            jax.nn.softmax(level.transition.forward.density.eta.log_table),
        )

    return moves


@functools.cache
def next_moves():
    """Every next state of a particle, η and origin carried along."""

    def moves(level, path, z_prev):
        states = jnp.arange(STATES, dtype=jnp.int32)
        carried = jax.tree.map(lambda x: jnp.broadcast_to(x, (STATES,)), z_prev)
        context = nvi.kernels.Context(level.theta, None)
        return (
            carried._replace(state=states),
            None,
            jnp.exp(level.transition.forward.kernel.log_probs(z_prev, context)),
        )

    return moves


def measure(branches, first):
    """E[mean_s w^s 1{particle s is (η, z_k)}], a table over η and z_k (over η alone at the first
    level).
    """
    z, log_w = branches.particles.z, branches.particles.log_w
    mass = branches.prob[:, None] * np.exp(log_w) / log_w.shape[-1]
    table = np.zeros((ETAS, STATES))
    np.add.at(table, (z.eta, z.state), mass)
    return table.sum(axis=1) if first else table


def enumerate_prepared(sampler, num_particles, spoil=lambda z: z):
    """The weighted measure after every level, and how likely resampling was to happen before it."""
    first = move_all(_nothing(num_particles), sampler.first_level(), sampler.path, first_moves())
    tables, fired = (
        [measure(first, True)] + [0.0] * (sampler.num_levels - 1),
        np.zeros(sampler.num_levels),
    )
    for b, prob in enumerate(first.prob):
        particles = jax.tree.map(lambda x, b=b: jnp.asarray(x[b]), first.particles)
        ready, particles = prepare(sampler, particles)
        particles = particles._replace(z=spoil(particles.z), stats=spoil(particles.stats))
        branches = Branches(
            np.array([prob]),
            jax.tree.map(lambda x: np.asarray(x)[None], particles),
            np.zeros(1, bool),
        )
        for k in range(2, ready.num_levels + 1):
            level = ready.level(k)
            branches = move_all(
                resample_all(branches, level.resampling), level, ready.path, next_moves()
            )
            tables[k - 1] = tables[k - 1] + measure(branches, False)
            fired[k - 1] += np.sum(branches.prob * branches.resampled)
    return tables, fired


def _nothing(num_particles):
    particles = jax.tree.map(
        lambda x: np.asarray(x)[None], nvi.particles.Particles(None, None, np.zeros(num_particles))
    )
    return Branches(np.ones(1), particles, np.zeros(1, bool))


def exact(world, num_steps):
    """γ_k with z_{1:k-1} summed out."""
    gammas = [np.exp(np.asarray(t)) for t in log_targets(world.model, world.heuristic, num_steps)]
    return [g if g.ndim == 1 else g.sum(axis=tuple(range(1, g.ndim - 1))) for g in gammas]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "when"), [("systematic", "never"), ("systematic", "always"), ("multinomial", 0.8)]
)
@pytest.mark.parametrize("guided", [False, True])
def test_global_variables_and_states_are_properly_weighted(scheme, when, guided):
    """E[w_k 1{η, z_k}] = Σ_{z_{1:k-1}} γ_k(η, z_{1:k}) at every point and level, also where
    resampling shuffles rows.
    """
    world = make_world(1, guided)
    tables, fired = enumerate_prepared(world.sampler(2, when, scheme), 2)
    for table, gamma in zip(tables, exact(world, 2), strict=True):
        np.testing.assert_allclose(table, gamma, rtol=1e-10)
    if isinstance(when, float):
        # Both branches of the rule must occur, or the enumeration would show nothing about it.
        assert any(0.01 < p < 0.99 for p in fired)


@pytest.mark.slow
def test_the_check_sees_a_row_of_another_particle():
    """If particles read each other's messages the intermediate targets are wrong."""
    world = make_world(1)
    tables, _ = enumerate_prepared(
        world.sampler(2), 2, spoil=lambda z: z._replace(origin=z.origin[::-1])
    )
    assert np.abs(tables[1] - exact(world, 2)[1]).max() > 0.01
