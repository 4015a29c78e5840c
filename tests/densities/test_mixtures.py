"""Mixtures of unlike parts, of many widths, of correlated Gaussians and with Student tails, against
SciPy.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nestedvi as nvi
from nestedvi.densities.mixtures import CorrelatedMixture, Mixture, ScaleMixture, StudentMixture
from tests.helpers.draws import check_draws

POINT = np.array([0.7, -1.2])
MATRIX = np.array([[2.0, 0.0], [-0.5, 0.8]])
MEANS = np.array([[0.5, -1.0, 0.0], [-0.6, 0.4, 2.0]])
ROOTS = np.array(
    [
        [[0.9, 0.0, 0.0], [0.3, 0.7, 0.0], [0.1, -0.2, 1.1]],
        [[1.2, 0.0, 0.0], [-0.4, 0.8, 0.0], [0.0, 0.3, 0.6]],
    ]
)


@pytest.mark.usefixtures("x64")
def test_experts():
    density = Mixture(
        [nvi.DiagonalNormal(jnp.zeros(2), 1.0), nvi.DiagonalNormal(jnp.full(2, 3.0), 2.0)],
        np.log([0.25, 0.75]),
    )
    parts = [stats.norm(0, 1).pdf(POINT).prod(), stats.norm(3, 2).pdf(POINT).prod()]
    np.testing.assert_allclose(
        density.log_gamma(POINT), np.log(0.25 * parts[0] + 0.75 * parts[1]), rtol=1e-10
    )
    np.testing.assert_allclose(density.log_parts(POINT), np.log(parts), rtol=1e-10)
    between = 0.25 * 0.75 * 9.0
    check_draws(
        density, np.full(2, 2.25), np.full((2, 2), between) + np.eye(2) * (0.25 * 1 + 0.75 * 4)
    )


@pytest.mark.usefixtures("x64")
def test_weights_may_be_whole_numbers(key):
    one = CorrelatedMixture(np.zeros((2, 2)), np.stack([np.eye(2)] * 2), [0, 0])
    assert Mixture((one, one), [0, 0]).sample(key).shape == one.sample(key).shape == (2,)


@pytest.mark.usefixtures("x64")
def test_a_scale_mixture():
    density = ScaleMixture(2, (0.5, 4.0))
    expected = np.log(0.5 * sum(stats.norm(0, s).pdf(POINT).prod() for s in (0.5, 4.0)))
    np.testing.assert_allclose(density.log_gamma(POINT), expected, rtol=1e-10)
    check_draws(density, np.zeros(2), np.eye(2) * 0.5 * (0.25 + 16.0))


def test_a_correlated_mixture(x64):
    means, roots, weights = (
        np.array([[0.0, 1.0], [-1.0, -2.0]]),
        np.stack([MATRIX, np.diag([0.5, 2.0])]),
        np.array([0.3, 0.7]),
    )
    density = CorrelatedMixture(means, roots, np.log(weights))
    covariances = roots @ roots.transpose(0, 2, 1)
    parts = [
        w * stats.multivariate_normal(m, c).pdf(POINT)
        for w, m, c in zip(weights, means, covariances, strict=True)
    ]
    np.testing.assert_allclose(density.log_gamma(POINT), np.log(sum(parts)), rtol=1e-10)
    mean = weights @ means
    spread = means - mean
    check_draws(
        density,
        mean,
        np.einsum("m,mij->ij", weights, covariances) + (weights[:, None] * spread).T @ spread,
    )


def test_density_is_that_of_its_parts(x64):
    density = StudentMixture(MEANS, ROOTS, np.log([0.3, 0.7]), tails=0.2, freedom=4)
    z = np.random.default_rng(0).normal(size=(20, 3)) * 3
    expected = 0.0
    for mean, root, weight in zip(MEANS, ROOTS, (0.3, 0.7), strict=True):
        normal = stats.multivariate_normal(mean, root @ root.T).pdf(z)
        student = stats.multivariate_t(mean, root @ root.T, df=4).pdf(z)
        expected = expected + weight * (0.8 * normal + 0.2 * student)
    got = jax.vmap(density.log_gamma)(jnp.asarray(z))
    np.testing.assert_allclose(got, np.log(expected), rtol=1e-10)


def test_draws_are_of_the_density(x64, key):
    """The share of draws within a ball of the whitened first component, by its own density."""
    density = StudentMixture(MEANS[:1], ROOTS[:1], jnp.zeros(1), tails=0.5, freedom=3)
    draws = np.asarray(jax.vmap(density.sample)(jax.random.split(key, 20_000)))
    square = np.sum(np.linalg.solve(ROOTS[0], (draws - MEANS[0]).T) ** 2, axis=0)
    for radius in (0.5, 2.0, 4.0):
        normal = stats.chi2(3).cdf(radius**2)
        student = stats.f(3, 3).cdf(radius**2 / 3)
        share = 0.5 * normal + 0.5 * student
        assert abs(np.mean(square < radius**2) - share) < 5 * np.sqrt(share * (1 - share) / 20_000)


@pytest.mark.parametrize("options", [{"tails": 0.0}, {"tails": 1.0}, {"freedom": 0}])
def test_impossible_tails_are_refused(options):
    with pytest.raises(ValueError, match="share between 0 and 1"):
        StudentMixture(MEANS, ROOTS, jnp.zeros(2), **options)


def test_what_an_optimiser_may_move_leaves_a_density(key):
    """All that training learns, moved by as much as it likes: draws on the host, draws by the
    compiled program and the density still agree, and the degrees of freedom stay.
    """
    density = StudentMixture(MEANS[:1, :1], np.ones((1, 1, 1)), jnp.zeros(1), tails=0.3, freedom=2)
    learned, rest = eqx.partition(density, eqx.is_inexact_array)
    moved = eqx.combine(jax.tree.map(lambda x: x + 2.5, learned), rest)
    assert int(moved.freedom) == 2 and 0.3 < moved.tails < 1
    num, width = 20_000, float(moved.roots[0, 0, 0])
    share = moved.tails
    for draws in (
        moved.sample_many(key, num),
        jax.vmap(moved.sample)(jax.random.split(key, num)),
    ):
        away = np.abs(np.asarray(draws)[:, 0] - float(moved.means[0, 0])) / width
        for far in (1.0, 5.0):
            beyond = 2 * ((1 - share) * stats.norm.sf(far) + share * stats.t(2).sf(far))
            assert abs(np.mean(away > far) - beyond) < 5 * np.sqrt(beyond * (1 - beyond) / num)
    at = moved.means[0] + 3.0 * width
    expected = (1 - share) * stats.norm.pdf(3.0) + share * stats.t(2).pdf(3.0)
    np.testing.assert_allclose(moved.log_gamma(at), np.log(expected / width), rtol=1e-4)
