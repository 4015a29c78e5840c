"""Invariant moves: exact samples stay exact samples, and the increment is a ratio of densities at
the old particle.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.kernels.mcmc import invariant_scores

NUM = 20_000


def target():
    return nvi.densities.GaussianMixture([[-2.0], [1.0]], 0.4, weights=[1.0, 2.0])


def normal_cdf(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def target_cdf(x):
    return (normal_cdf((x + 2) / math.sqrt(0.4)) + 2 * normal_cdf((x - 1) / math.sqrt(0.4))) / 3


def test_random_walk_leaves_the_target_invariant(key, x64):
    """Exact draws, moved many times, keep the target's distribution function at every point; and
    they did move.
    """
    density = target()
    transition = nvi.RandomWalk(jnp.array([1.5]), steps=10)
    context = nvi.kernels.Context(None, density.log_gamma)

    def one(key):
        key_start, key_move = jax.random.split(key)
        start = density.sample(key_start)
        return start, transition.move(key_move, start, context)[0]

    start, end = jax.jit(jax.vmap(one))(jax.random.split(key, NUM))
    at = np.linspace(-3.5, 2.5, 13)
    expected = np.array([target_cdf(x) for x in at])
    stderr = np.sqrt(expected * (1 - expected) / NUM)
    found = np.mean(np.asarray(end) <= at, axis=0)
    assert (np.abs(found - expected) < 4.5 * stderr).all()
    assert float(jnp.mean(start != end)) > 0.9
    assert abs(np.corrcoef(start[:, 0], end[:, 0])[0, 1]) < 0.9


def test_random_walk_moves_trees_together(key, x64):
    """One acceptance for the whole particle: two coupled fields keep their joint law N(0, [[1, .8],
    [.8, 1]]).
    """

    def log_gamma(z):
        return -0.5 * (z["a"] ** 2 - 1.6 * z["a"] * z["b"][0] + z["b"][0] ** 2) / 0.36

    def one(key):
        key_start, key_move = jax.random.split(key)
        x, y = jax.random.normal(key_start, (2,))
        start = {"a": x, "b": jnp.stack([0.8 * x + 0.6 * y])}
        return nvi.RandomWalk(jnp.array(0.7), steps=5).move(
            key_move, start, nvi.kernels.Context(None, log_gamma)
        )[0]

    z = jax.jit(jax.vmap(one))(jax.random.split(key, NUM))
    a, b = np.asarray(z["a"]), np.asarray(z["b"][:, 0])
    assert abs(np.mean(a * b) - 0.8) < 5 * math.sqrt(1.64 / NUM)
    assert abs(np.mean(a**2) - 1) < 5 * math.sqrt(2 / NUM)
    assert abs(np.mean(b**2) - 1) < 5 * math.sqrt(2 / NUM)


def test_random_walk_never_leaves_the_support(key):
    """A proposal where γ is zero is refused; a particle that starts there may only come in."""

    def log_gamma(z):
        return jnp.where((z[0] > 0) & (z[0] < 1), 0.0, -jnp.inf)

    def move(z, k):
        return nvi.RandomWalk(jnp.array([0.5]), steps=20).move(
            k, z, nvi.kernels.Context(None, log_gamma)
        )[0]

    starts = jnp.concatenate([jnp.full((200, 1), 0.5), jnp.full((200, 1), 1.2)])
    ends = jax.jit(jax.vmap(move))(starts, jax.random.split(key, 400))[:, 0]
    inside = (ends > 0) & (ends < 1)
    assert inside[:200].all()
    assert (inside | (ends == jnp.float32(1.2)))[200:].all() and inside[200:].any()


@pytest.mark.parametrize(
    ("z_prev", "z", "expected"),
    [(0.5, 0.25, -0.5 + 0.25), (0.5, 0.5, 0.0), (2.0, 0.5, -math.inf), (2.0, 3.0, -math.inf)],
)
def test_scores_are_the_time_reversals(z_prev, z, expected):
    """log r − log q = log γ_k(z_{k-1}) − log γ_k(z_k); −inf where γ_k excludes the old particle,
    wherever it went.
    """
    context = nvi.kernels.Context(None, lambda z: jnp.where(z < 1, -z, -jnp.inf))
    scores = invariant_scores(jnp.array(z), jnp.array(z_prev), context)
    assert float(scores.log_r) == expected
    assert float(scores.log_q) == 0.0 and float(scores.log_q_score) == 0.0


def test_steps_use_their_own_noise(key):
    """A flat density accepts everything: after n steps the variance is n times that of one."""
    context = nvi.kernels.Context(None, lambda z: jnp.zeros(()))

    def spread(steps):
        walk = nvi.RandomWalk(jnp.array([0.5]), steps=steps)
        ends = jax.jit(jax.vmap(lambda k: walk.move(k, jnp.zeros(1), context)[0]))(
            jax.random.split(key, NUM)
        )
        return float(jnp.mean(ends**2))

    for steps in (1, 8):
        assert abs(spread(steps) - 0.25 * steps) < 5 * 0.25 * steps * math.sqrt(2 / NUM)
