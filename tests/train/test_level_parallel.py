"""Level-parallel training: the expectation of sequential training, and log Ẑ unbiased while
parameters change under its particles.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.particles.resampling import Particles
from nestedvi.train import orders
from nestedvi.train.orders import initial_population
from tests.helpers.trained_samplers import (
    ALL,
    annealing,
    discrete_sampler,
    gaussian_pair,
    gradient,
    initial,
    nvi_sampler,
    stacked,
    state_space_sampler,
    untied,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


def parallel_gradient(sampler, objective, population, key):
    return gradient(key, sampler, objective, 8, order="level-parallel", population=population)


@pytest.mark.slow
def test_uniform_weights_ignore_what_comes_in(key, x64):
    """AVO: scaling the incoming weights of a population changes nothing; with NVI's weights it
    does.
    """
    sampler = nvi_sampler()
    population = initial_population(key, sampler, "level-parallel", 8)
    spread = jnp.linspace(-2.0, 2.0, 8)
    tilted = population._replace(
        particles=population.particles._replace(log_w=population.particles.log_w + spread)
    )
    for weights, ignores in (("uniform", True), ("normalised", False)):
        objective = nvi.Objective(weights=weights)
        one, two = (
            parallel_gradient(sampler, objective, p, key).grads.transitions.transition
            for p in (population, tilted)
        )
        same = [
            np.allclose(a, b, rtol=1e-12)
            for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
        ]
        assert all(same) if ignores else not any(same)


KEYS = 3000


def small_sampler(resampling=None):
    return nvi.NestedSampler(initial(), annealing(3), stacked(gaussian_pair, 2), resampling)


@pytest.mark.slow
@pytest.mark.parametrize(
    "resampling", [None, nvi.Resampling("systematic", "always")], ids=["NVI*", "NVIR*"]
)
def test_level_parallel_has_the_sequential_expectation(resampling, key, x64):
    """With frozen parameters every population is distributed as in a run, so the mean gradients
    agree.
    """
    sampler, objective = small_sampler(resampling), nvi.Objective(learn=ALL)

    def parallel(key):
        # Two steps replace every population of a three-level sampler.
        keys = jax.random.split(key, 3)
        population = initial_population(keys[0], sampler, "level-parallel", 6)
        for k in keys[1:]:
            result = orders.gradient(
                k, sampler, objective, 6, order="level-parallel", population=population
            )
            population = result.carry
        return result.grads, jnp.exp(result.info.log_Z_hat)

    def sequential(key):
        result = orders.gradient(key, sampler, objective, 6)
        return result.grads, jnp.exp(result.info.log_Z_hat)

    keys = jax.random.split(key, (2, KEYS))
    one, two = jax.jit(jax.vmap(parallel))(keys[0]), jax.jit(jax.vmap(sequential))(keys[1])
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        error = np.sqrt((np.var(a, axis=0) + np.var(b, axis=0)) / KEYS)
        np.testing.assert_array_less(
            np.abs(np.mean(a, axis=0) - np.mean(b, axis=0)), 5 * error + 1e-12
        )


def ratios(key, old, new, log_Z, forget):
    """Ẑ/Z of one level-parallel step under new parameters from populations of old ones; `forget`
    drops the reweighting.
    """

    def one(key):
        key_old, key_new = jax.random.split(key)
        population = initial_population(key_old, old, "level-parallel", 6)
        if forget:
            population = population._replace(path=eqx.filter(new.path, eqx.is_array))
        result = orders.gradient(
            key_new, new, nvi.Objective(), 6, order="level-parallel", population=population
        )
        return jnp.exp(result.info.log_Z_hat - log_Z)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(key, KEYS)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "resampling", [None, nvi.Resampling("systematic", "always")], ids=["NVI*", "NVIR*"]
)
def test_level_parallel_reweights_for_new_parameters(resampling, key, x64):
    """log Ẑ stays unbiased when θ moves between steps, and would not without γ_k(z; new θ)/γ_k(z;
    old θ).
    """
    old = discrete_sampler()
    old = nvi.NestedSampler(old.initial, old.path, old.transitions, resampling)
    new = eqx.tree_at(
        lambda s: s.path.inner.log_table,
        old,
        replace_fn=lambda x: x.at[:, 0].add(-1.5).at[:, 1].add(0.7),
    )
    log_Z = float(jax.nn.logsumexp(new.path.target.log_table))
    kept, forgotten = ratios(key, old, new, log_Z, False), ratios(key, old, new, log_Z, True)
    error = kept.std(ddof=1) / np.sqrt(KEYS)
    assert error < 0.05 and abs(kept.mean() - 1) < 4.5 * error
    assert abs(forgotten.mean() - 1) > 8 * forgotten.std(ddof=1) / np.sqrt(KEYS)


def test_level_parallel_reweights_for_a_new_heuristic(key, x64):
    """The heuristic belongs to the whole path, not to a level's θ; particles made under an old one
    must be reweighted too.
    """
    old = state_space_sampler()
    new = eqx.tree_at(lambda s: s.path.heuristic.centre, old, jnp.asarray(-0.4))
    reference = jax.jit(jax.vmap(lambda k: jnp.exp(nvi.run(k, new, 64).log_Z_hat)))(
        jax.random.split(key, KEYS)
    )
    log_Z = float(jnp.log(jnp.mean(reference)))
    got = ratios(jax.random.fold_in(key, 1), old, new, log_Z, False)
    error = np.hypot(got.std(ddof=1), np.std(reference) / np.exp(log_Z)) / np.sqrt(KEYS)
    assert error < 0.05 and abs(got.mean() - 1) < 4.5 * error


def test_level_parallel_needs_equal_levels(key):
    with pytest.raises(ValueError, match="sequential"):
        initial_population(key, untied(nvi_sampler()), "level-parallel", 4)
    assert initial_population(key, nvi_sampler(), "sequential", 4) is None


def test_population_is_what_left_each_level(key):
    """Levels 1 … K-1, with the path they were made under."""
    sampler = nvi_sampler()
    population = initial_population(key, sampler, "level-parallel", 5)
    assert isinstance(population.particles, Particles)
    assert population.particles.z.shape == (3, 5, 1)
    assert eqx.tree_equal(population.path, eqx.filter(sampler.path, eqx.is_array))
