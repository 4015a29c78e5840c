"""More components than modes: a ridge that bends, what no mode explains, tails in coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestedvi.densities.base import Density
from nestedvi.densities.mixtures import Mixture, StudentMixture
from nestedvi.densities.products import StudentProducts
from nestedvi.fitting.importance import SHORT, draw_weighted, fit_base
from nestedvi.fitting.richer import (
    around_particles,
    defended,
    for_moves,
    in_powers_of_two,
    richer_base,
    uncovered,
    with_component,
)
from nestedvi.particles.weights import ess, khat


def one_gaussian(dim, sd=1.0):
    return StudentMixture(jnp.zeros((1, dim)), sd * jnp.eye(dim)[None], jnp.zeros(1))


def banana(z):
    """A standard normal, and one whose mean is a parabola of it: log Z = log 2π."""
    return -0.5 * z[0] ** 2 - 0.5 * (z[1] - z[0] ** 2) ** 2


def test_more_components_follow_a_ridge_that_bends(x64):
    """Fitted the same way, four components keep more than twice the draws of one, and log Z is
    right.
    """
    target, key = Density(banana), jax.random.key(0)
    one = fit_base(key, one_gaussian(2), target, num=4000, good=0.9)
    base = richer_base(jax.random.key(1), one.base, target, num=4000, components=4)
    assert base.means.shape == (4, 2)
    four = fit_base(jax.random.key(2), base, target, num=4000, good=0.9)
    assert four.share > 2 * one.share
    error = np.sqrt((1 / four.share - 1) / 4000)
    assert abs(four.log_Z_hat - np.log(2 * np.pi)) < 5 * error


def test_uncovered_particles_are_those_the_base_lacks():
    """Two modes, and a base that knows one of them."""
    target = Density(lambda z: jnp.logaddexp(-0.5 * z[0] ** 2, -0.5 * (z[0] - 20) ** 2))
    z, log_Z = np.array([[0.0], [1.0], [20.0], [21.0]]), 0.5 * np.log(2 * np.pi)
    np.testing.assert_array_equal(uncovered(one_gaussian(1), target, z, log_Z + SHORT), z[2:])


def test_particles_that_no_mode_explains_get_their_share():
    z = np.random.default_rng(0).normal(5.0, 2.0, size=(500, 2))
    base = with_component(one_gaussian(2), z, 0.3)
    np.testing.assert_allclose(jax.nn.softmax(base.log_weights), [0.7, 0.3], rtol=1e-6)
    np.testing.assert_allclose(base.means[1], z.mean(axis=0), rtol=1e-6)
    covariance = np.asarray(base.roots[1] @ base.roots[1].T)
    np.testing.assert_allclose(covariance, 1.2 * np.cov(z.T), rtol=1e-3)


def test_particles_give_each_component_its_mean_and_covariance(x64):
    """Two groups of two thirds and one third; a component without particles keeps its shape."""
    rng = np.random.default_rng(4)
    z = np.concatenate([rng.normal(0.3, 2.0, (4000, 2)), rng.normal(20.0, 0.5, (2000, 2))])
    z = rng.permutation(z)
    means = jnp.array([[0.0, 0.0], [19.0, 21.0], [90.0, 90.0]])
    base = around_particles(
        StudentMixture(means, jnp.stack([jnp.eye(2)] * 3), jnp.zeros(3), tails=0.9, freedom=1), z
    )
    np.testing.assert_allclose((base.tails, base.freedom), (0.3, 5))
    np.testing.assert_allclose(jax.nn.softmax(base.log_weights), [2 / 3, 1 / 3, 0], atol=1e-3)
    np.testing.assert_allclose(base.means[:2], [[0.3, 0.3], [20.0, 20.0]], atol=5 * 2 / 4000**0.5)
    scatters = np.asarray(base.roots @ jnp.swapaxes(base.roots, 1, 2))
    np.testing.assert_allclose(scatters[0], 4.0 * np.eye(2), atol=0.4)
    np.testing.assert_allclose(scatters[1], 0.25 * np.eye(2), atol=0.04)
    np.testing.assert_allclose(scatters[2], np.eye(2), atol=1e-6)
    np.testing.assert_allclose(base.means[2], 90.0)


def test_a_defence_bounds_the_weights_of_a_tail_in_one_coordinate(x64):
    """One coordinate of thirty falls like e^-|x|, which no Gaussian covers: a weight far out with
    and without, and log Z.
    """
    dim, tail = 30, 1.4

    def log_gamma(z):
        return -jnp.abs(z[0]) * tail - 0.5 * jnp.sum(z[1:] ** 2)

    target, base = Density(log_gamma), one_gaussian(dim)
    both = defended(base, heavy=True)
    assert isinstance(both, Mixture)
    log_Z = np.log(2 / tail) + 14.5 * np.log(2 * np.pi)
    far = np.zeros((1, dim))
    far[0, 0] = 12.0
    bound = [
        float((target.log_gamma(jnp.asarray(far[0])) - b.log_prob_many(far))[0] - log_Z)
        for b in (base, both)
    ]
    assert bound[1] < bound[0] - 5
    for seed in range(3):
        _, log_ratio = draw_weighted(jax.random.key(seed), both, target, 20_000)
        error = np.sqrt((20_000 / float(ess(log_ratio)) - 1) / 20_000)
        assert abs(jax.nn.logsumexp(log_ratio) - np.log(20_000) - log_Z) < 4 * error
        assert khat(log_ratio) < 0.5


def test_a_defence_is_a_tenth_of_the_draws_and_normalised(x64):
    both = defended(one_gaussian(1, sd=2.0), heavy=True)
    z = np.linspace(-4000.0, 4000.0, 800_001)[:, None]
    np.testing.assert_allclose(np.trapezoid(np.exp(both.log_prob_many(z)), z[:, 0]), 1, rtol=1e-4)
    normal = 0.9 * np.exp(one_gaussian(1, sd=2.0).log_prob_many(np.array([[1.0]])))
    expected = normal + 0.1 * stats.t(4, 0, 2).pdf(1.0)
    np.testing.assert_allclose(np.exp(both.log_prob_many(np.array([[1.0]]))), expected, rtol=1e-6)


def test_what_has_tails_in_each_coordinate_needs_none():
    products = StudentProducts(jnp.zeros((1, 2)), jnp.ones((1, 2)), jnp.zeros(1), freedom=2)
    assert defended(products, heavy=True) is products


@pytest.mark.parametrize("components", [2, 8])
def test_components_are_as_many_as_asked_for(components):
    target = Density(lambda z: -0.5 * jnp.sum(z**2))
    key = jax.random.key(3)
    base = richer_base(key, one_gaussian(3), target, num=2000, components=components)
    assert base.means.shape == (components, 3) and np.all(np.isfinite(base.roots))


def test_a_base_that_needs_no_defence_keeps_its_density_in_the_same_program():
    base = one_gaussian(2, sd=2.0)
    none, some = (defended(base, heavy=heavy) for heavy in (False, True))
    assert jax.tree.structure(none) == jax.tree.structure(some)
    z = np.random.default_rng(0).normal(size=(50, 2))
    expected = base.log_prob_many(z)
    np.testing.assert_allclose(none.log_prob_many(z), expected, rtol=1e-6)
    with jax.default_matmul_precision("highest"):
        one_by_one = jax.vmap(none.log_gamma)(jnp.asarray(z, base.means.dtype))
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-4)
    assert np.abs(some.log_prob_many(z) - expected).max() > 0.01
    assert none.sample_many(jax.random.key(0), 100).shape == (100, 2)


@pytest.mark.parametrize("components, dim, padded", [(5, 2, 8), (9, 2, 16), (3, 65, 4), (1, 65, 1)])
def test_components_are_a_power_of_two_of_the_same_density(components, dim, padded, x64):
    rng = np.random.default_rng(0)
    means, weights = rng.normal(size=(components, dim)), rng.normal(size=components)
    roots = np.tril(rng.normal(size=(components, dim, dim))) + 3 * np.eye(dim)
    scales, z = np.exp(rng.normal(size=(components, dim))), rng.normal(size=(4, dim))
    for base in (
        StudentMixture(means, roots, weights, tails=0.9, freedom=2),
        StudentProducts(means, scales, weights, freedom=4),
    ):
        same = in_powers_of_two(base)
        assert len(same.means) == len(same.log_weights) == padded
        np.testing.assert_allclose(same.log_prob_many(z), base.log_prob_many(z), rtol=1e-10)


def test_a_base_for_moves_costs_no_square_of_many_dimensions(x64):
    """In 250 of them: light tails, the same place, and the same covariance where that has few
    directions; in few dimensions it is the same density.
    """
    rng, dim = np.random.default_rng(6), 250
    scales = np.exp(rng.normal(size=dim))
    covariance = np.diag(scales**2) + 9.0 * np.outer(scales, scales)
    root = np.linalg.cholesky(covariance)
    base = StudentMixture(jnp.ones((1, dim)), jnp.asarray(root)[None], jnp.zeros(1))
    light = for_moves(base)
    assert all(x.size <= 32 * dim for x in jax.tree.leaves(light))
    z = 1.0 + rng.normal(size=(5, dim)) @ root.T
    expected = stats.multivariate_normal(np.ones(dim), covariance).logpdf(z)
    np.testing.assert_allclose(light.log_prob_many(z), expected, rtol=1e-6)
    small = StudentMixture(
        jnp.ones((1, 2)), jnp.asarray([[1.0, 0.0], [0.6, 0.8]])[None], jnp.zeros(1)
    )
    few = rng.normal(size=(5, 2))
    np.testing.assert_allclose(
        for_moves(small).log_prob_many(few), small.log_prob_many(few), rtol=1e-10
    )
