"""Roots of low rank beside a diagonal: their products against those of the full matrix, the density
against SciPy, and covariances that few particles give back in many dimensions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestedvi.densities.low_rank import (
    LowRankNormal,
    LowRankRoot,
    low_rank_bulk_root,
    low_rank_of,
    low_rank_root,
)
from tests.helpers.draws import check_draws

pytestmark = pytest.mark.usefixtures("x64")


def example(dim=4, rank=2, seed=0):
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(dim, rank)))[0]
    return LowRankRoot(np.exp(rng.normal(size=dim)), directions, np.array([5.0, 0.2])[:rank])


def covariance_of(root):
    return root.full @ root.full.T


def kl(root, covariance):
    """KL(N(0, root rootᵀ) ‖ N(0, covariance)) both ways."""
    there = np.linalg.solve(covariance, covariance_of(root))
    return 0.5 * (np.trace(there) + np.trace(np.linalg.inv(there)) - 2 * len(covariance))


@pytest.mark.parametrize("xp", [np, jnp])
def test_products_are_those_of_the_full_matrix(xp):
    root = jax.tree.map(xp.asarray, example())
    inner = np.eye(4) + (root.directions * (root.stretches - 1)) @ root.directions.T
    full = np.diag(root.scales) @ inner
    rows = xp.asarray(np.random.default_rng(1).normal(size=(3, 4)))
    np.testing.assert_allclose(root.full, full, rtol=1e-12)
    np.testing.assert_allclose(root @ rows[0], full @ rows[0], rtol=1e-12)
    np.testing.assert_allclose(rows @ root, rows @ full, rtol=1e-12)
    np.testing.assert_allclose(rows[0] @ root, rows[0] @ full, rtol=1e-12)
    np.testing.assert_allclose(root.apply(rows), rows @ full.T, rtol=1e-12)
    np.testing.assert_allclose(root.solve(root.apply(rows)), rows, rtol=1e-12)
    np.testing.assert_allclose(root.log_det, np.log(abs(np.linalg.det(full))), rtol=1e-12)
    assert root.shape == (4, 4)


def test_a_normal_with_such_a_root():
    mean, root = np.array([1.0, -2.0, 0.0, 3.0]), example()
    density = LowRankNormal(jnp.asarray(mean), root)
    z = np.random.default_rng(2).normal(size=(5, 4))
    expected = stats.multivariate_normal(mean, covariance_of(root)).logpdf(z)
    np.testing.assert_allclose(jax.vmap(density.log_gamma)(z), expected, rtol=1e-10)
    np.testing.assert_allclose(density.log_prob_many(z), expected, rtol=1e-10)
    check_draws(density, mean, covariance_of(root))
    many = np.asarray(density.sample_many(jax.random.key(3), 40_000))
    off = np.cov(many.T) / np.sqrt(np.outer(*[np.diag(covariance_of(root))] * 2))
    exact = covariance_of(root) / np.sqrt(np.outer(*[np.diag(covariance_of(root))] * 2))
    # Entries of a correlation have a standard error of at most √2/√n.
    assert np.abs(off - exact).max() < 5 * (2 / 40_000) ** 0.5
    assert np.abs(many.mean(axis=0) - mean).max() < 5 * root.full.max() * 2 / 40_000**0.5
    with pytest.raises(ValueError, match="LowRankNormal scores particles of shape"):
        density.log_gamma(np.zeros(3))


def diagonal(z):
    return LowRankRoot(z.std(axis=0), np.zeros((z.shape[1], 1)), np.ones(1))


def test_a_full_root_with_few_wide_directions_is_given_back():
    """But for the widths of coordinates, which the directions take part in: without directions it
    is further off by two orders of magnitude.
    """
    wide = covariance_of(example(60))
    assert kl(low_rank_of(np.linalg.cholesky(wide)), wide) < 0.1
    assert kl(LowRankRoot(np.sqrt(np.diag(wide)), np.zeros((60, 1)), np.ones(1)), wide) > 10


def test_particles_say_scales_and_what_is_wide():
    """400 particles in 300 dimensions of widths from .01 to 100, two directions stretched: their
    covariance is no guide, and without directions it is four times as far off. Without any such
    direction none is invented: 300 widths of 400 particles are 0.75 off.
    """
    rng, dim = np.random.default_rng(4), 300
    scales = 10.0 ** rng.uniform(-2, 2, size=dim)
    directions = np.linalg.qr(rng.normal(size=(dim, 2)))[0]
    truth = LowRankRoot(scales, directions, np.array([10.0, 6.0]))
    z = 3.0 + truth.apply(rng.normal(size=(400, dim)))
    assert kl(low_rank_root(z), covariance_of(truth)) < 20
    assert kl(diagonal(z), covariance_of(truth)) > 50
    plain = LowRankRoot(scales, directions, np.ones(2))
    z = plain.apply(rng.normal(size=(400, dim)))
    assert kl(low_rank_root(z), covariance_of(plain)) < 1.5


def test_a_metric_has_directions_where_particles_are_many():
    """Four for each dimension. Of fewer it is the widths alone, whatever the particles are."""
    rng, dim = np.random.default_rng(4), 60
    truth = LowRankRoot(np.ones(dim), np.eye(dim)[:, :1], np.array([10.0]))
    turned = LowRankRoot(np.ones(dim), np.ones((dim, 1)) / dim**0.5, np.array([10.0]))
    for root in (truth, turned):
        z = root.apply(rng.normal(size=(4 * dim, dim)))
        assert kl(low_rank_bulk_root(z), covariance_of(root)) < 15
        few = low_rank_bulk_root(z[:-1])
        np.testing.assert_allclose(covariance_of(few), np.diag(np.diag(covariance_of(few))))
        np.testing.assert_allclose(
            np.diag(covariance_of(few)), np.diag(covariance_of(low_rank_bulk_root(z))), rtol=0.2
        )


def test_a_known_root_has_as_many_directions_as_it_takes():
    """A hundred of 300 are wide: with 32 or 64 of them tens of nats would be lost."""
    rng, dim = np.random.default_rng(5), 300
    directions = np.linalg.qr(rng.normal(size=(dim, 100)))[0]
    wide = LowRankRoot(np.ones(dim), directions, np.full(100, 3.0)).full
    root = low_rank_of(np.linalg.cholesky(wide @ wide.T))
    assert root.directions.shape == (dim, 128) and kl(root, wide @ wide.T) < 1
    assert low_rank_of(np.eye(dim)).directions.shape == (dim, 32)


def test_particles_far_out_count_less_in_a_metric():
    """A tenth of the particles is a hundred times as far out: the others say the widths, within
    five standard errors of the narrowest and widest of 250.
    """
    rng = np.random.default_rng(5)
    z = rng.normal(size=(1000, 250)) * np.where(np.arange(1000) % 10 == 0, 100.0, 1.0)[:, None]
    widths = np.sqrt(np.diag(covariance_of(low_rank_bulk_root(z))))
    assert np.abs(widths / np.median(widths) - 1).max() < 5 / (2 * 900) ** 0.5
    assert abs(np.median(widths) - 1) < 0.1 and np.median(z.std(axis=0)) > 25


def test_how_much_a_particle_counts():
    """One that counts twice is as two."""
    z = np.random.default_rng(6).normal(size=(300, 5))
    weight = np.where(np.arange(300) % 3 == 0, 2.0, 1.0)
    again = np.repeat(z, weight.astype(int), axis=0)
    expected = np.cov(again.T, bias=True)
    np.testing.assert_allclose(
        np.diag(covariance_of(low_rank_root(z, weight))), np.diag(expected), rtol=0.1
    )
    np.testing.assert_allclose(low_rank_root(z, 2 * weight).full, low_rank_root(z, weight).full)
