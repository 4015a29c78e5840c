"""Gaussians nearest in reverse KL: against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.fitting.variational import Gaussian, fit_variational

KEY = jax.random.key(0)


@pytest.mark.parametrize(("seed", "dim"), [(0, 80), (0, 70), (1, 70)])
def test_a_gaussian_is_found_and_its_bound_is_log_Z(seed, dim, x64):
    """Correlated, some 25 units from where it starts: a quadratic has one Hessian, and draws in
    pairs one mean slope, so that whole steps are all it takes.
    """
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(dim, dim)) / dim**0.5 + np.eye(dim)
    covariance, mean = a @ a.T, rng.normal(size=dim) * 3
    precision = jnp.asarray(np.linalg.inv(covariance))
    density = nvi.Density(lambda z: 2.0 - 0.5 * (z - mean) @ precision @ (z - mean))
    found = fit_variational(KEY, density, np.zeros((1, dim)))
    white = np.linalg.solve(found.root, covariance) @ np.linalg.inv(found.root).T
    np.testing.assert_allclose(np.linalg.eigvalsh(white), 1.0, atol=1e-3)
    away = np.linalg.solve(found.root, found.mean - mean)
    assert 0.5 * away @ away < 1e-3
    log_Z = 2.0 + 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    assert abs(found.bound - log_Z) < 1e-3 and found.gradients > 0


def test_a_level_that_hardly_moves_is_found(x64):
    """A random walk of a hundred steps, a hundred times narrower than what is seen of it: means
    with independent coordinates are ten thousand times too narrow along the level.
    """
    y = np.random.default_rng(0).normal(size=100)

    def log_gamma(z):
        return -0.5 * jnp.sum((y - z) ** 2) - 0.5e4 * jnp.sum(jnp.diff(z) ** 2)

    precision = np.eye(100) + 1e4 * np.diff(np.eye(100), axis=0).T @ np.diff(np.eye(100), axis=0)
    found = fit_variational(KEY, nvi.Density(log_gamma), np.zeros((1, 100)))
    white = found.root.T @ precision @ found.root
    np.testing.assert_allclose(np.linalg.eigvalsh(white), 1.0, atol=0.02)


def test_a_skew_density_has_its_nearest_gaussian(x64):
    """γ(z) = exp(a z − eᶻ) in each coordinate. Under N(m, s²) the mean of eᶻ is e^(m + s²/2): it is
    a where the mean slope is none, and 1/s² where s² is the inverse mean curvature.
    """
    a = jnp.asarray([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
    density = nvi.Density(lambda z: jnp.sum(a * z - jnp.exp(z)))
    found = fit_variational(KEY, density, np.zeros((1, 6)))
    covariance = found.root @ found.root.T
    # Each step has 32 Hessians and goes a third of the way: noise as of some 180 draws. The
    # relative standard deviation of eᶻ at a draw is (e^(s²) − 1)^½.
    noise = np.sqrt((np.exp(1 / a) - 1) / 180)
    assert np.all(np.abs(np.diag(covariance) * a - 1) < 5 * noise)
    assert np.all(np.abs(found.mean - (np.log(a) - 0.5 / a)) * np.sqrt(a) < 5 * noise)


def test_the_better_of_two_places_is_taken():
    """One is where the density is flat zero for numbers: its bound is none."""
    density = nvi.Density(lambda z: jnp.where(z[0] > 50, -jnp.inf, -0.5 * jnp.sum(z**2)))
    found = fit_variational(KEY, density, np.array([[100.0, 0.0], [3.0, 0.0]]))
    assert np.linalg.norm(found.mean) < 0.1
    assert fit_variational(KEY, density, np.array([[100.0, 0.0]])) is None


def example():
    rng = np.random.default_rng(1)
    a = rng.normal(size=(7, 7)) + 2 * np.eye(7)
    return Gaussian(rng.normal(size=7), np.linalg.cholesky(a @ a.T), 0.0, 0)


def test_given_some_coordinates_of_its_own_it_is_itself(x64):
    """With the marginal of two of seven in place of them."""
    gaussian = example()
    covariance = gaussian.root @ gaussian.root.T
    some = np.array([1, 5])
    root = np.linalg.cholesky(covariance[np.ix_(some, some)])
    part = nvi.densities.CorrelatedMixture(gaussian.mean[some][None], root[None], jnp.zeros(1))
    z = np.random.default_rng(2).normal(size=(20, 7)) * 3
    away = np.linalg.solve(gaussian.root, (z - gaussian.mean).T)
    log_p = -0.5 * np.sum(away**2, axis=0) - np.log(np.diag(gaussian.root)).sum()
    given = gaussian.given(some, part)
    np.testing.assert_allclose(given.log_prob_many(z), log_p - 3.5 * np.log(2 * np.pi), rtol=1e-6)


@pytest.mark.parametrize("change", ["mean", "spread"])
def test_coordinates_with_another_mean_or_spread_are_named(change):
    """Ten standard errors are; those of chance, below six, are not."""
    gaussian, num = example(), 1000
    eps = np.random.default_rng(3).normal(size=(num, 7))
    z = gaussian.mean + eps @ gaussian.root.T
    assert len(gaussian.wrong_in(z, num)) == 0
    width = np.linalg.norm(gaussian.root[4])
    if change == "mean":
        z[:, 4] += 10 * width / num**0.5
    else:
        z[:, 4] = gaussian.mean[4] + (1 + 10 / (2 * num) ** 0.5) * (z[:, 4] - gaussian.mean[4])
    wrong = gaussian.wrong_in(z, num)
    assert 4 in wrong and len(wrong) == 4 and (np.diff(wrong) > 0).all()
    # Ten draws of the same thousand say less.
    assert len(gaussian.wrong_in(z, num // 10)) == 0


def test_as_a_mixture_it_has_one_component_with_tails():
    mixture = example().as_mixture(jnp.float32)
    assert mixture.means.shape == (1, 7) and mixture.means.dtype == jnp.float32
    assert mixture.tails > 0
