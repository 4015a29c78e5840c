"""An affine change of coordinates: densities against SciPy, and the same log Z on both sides. Roots
of covariances: whitened data; the shape of the bulk, which a heavy tail may not change and a
rotation turns.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nestedvi as nvi
from nestedvi.densities.affine import (
    Affine,
    AffineMap,
    Pullback,
    bulk_root,
    in_units_of,
    shrunk_root,
    whiten,
)
from tests.helpers.draws import check_draws

pytestmark = pytest.mark.usefixtures("x64")
POINT = np.array([0.7, -1.2])
MATRIX = np.array([[2.0, 0.0], [-0.5, 0.8]])


def test_an_affine_image():
    density = Affine(
        nvi.DiagonalNormal(jnp.zeros(2), 1.0), jnp.array([1.0, -2.0]), jnp.asarray(MATRIX)
    )
    covariance = MATRIX @ MATRIX.T
    np.testing.assert_allclose(
        density.log_gamma(POINT),
        stats.multivariate_normal([1, -2], covariance).logpdf(POINT),
        rtol=1e-10,
    )
    check_draws(density, np.array([1.0, -2.0]), covariance)


def test_the_way_back_and_the_determinant():
    """A full matrix, and a vector in place of a diagonal one."""
    for matrix, full in ((MATRIX, MATRIX), (np.array([2.0, -0.5]), np.diag([2.0, -0.5]))):
        there = AffineMap(np.array([1.0, -2.0]), matrix)
        np.testing.assert_allclose(there(POINT), np.array([1.0, -2.0]) + full @ POINT, rtol=1e-12)
        back = there.inverse()
        np.testing.assert_allclose(back(there(POINT)), POINT, rtol=1e-12)
        exact = np.log(abs(np.linalg.det(full)))
        np.testing.assert_allclose([there.log_det, back.log_det], [exact, exact], rtol=1e-12)
        both = there(np.stack([POINT, 2 * POINT]))
        np.testing.assert_allclose(both, [there(POINT), there(2 * POINT)], rtol=1e-12)


def test_a_pullback_undoes_the_image():
    """Pulled back along its own map, the image of a normal is that normal, at every point."""
    part = nvi.DiagonalNormal(jnp.zeros(2), 1.0)
    image = Affine(part, np.array([1.0, -2.0]), MATRIX)
    pulled = Pullback(image, image.map)
    np.testing.assert_allclose(pulled.log_gamma(POINT), part.log_gamma(POINT), rtol=1e-12)
    ahead = pulled.precomputed()
    assert ahead.density.back is not None and image.back is None
    np.testing.assert_allclose(ahead.log_gamma(POINT), part.log_gamma(POINT), rtol=1e-12)
    with pytest.raises(ValueError, match=r"Pullback scores particles of shape \(2,\)"):
        pulled.log_gamma(np.zeros(3))


def test_units_of_particles_make_them_unit_wide(key):
    gaussian = nvi.DiagonalNormal(jnp.array([3.0, -1.0]), jnp.array([0.5, 2.0]))
    start = Pullback(gaussian, AffineMap(jnp.zeros(2), jnp.ones(2)))
    z = jax.vmap(gaussian.sample)(jax.random.split(key, 5000))
    target = in_units_of(start, z, width=2.0)
    u = (z - target.map.shift) / target.map.matrix
    np.testing.assert_allclose(jnp.std(u, axis=0), [2.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(jnp.mean(u, axis=0), [0.0, 0.0], atol=1e-6)
    expected = gaussian.log_gamma(z[0]) + jnp.sum(jnp.log(target.map.matrix))
    np.testing.assert_allclose(target.log_gamma(u[0]), expected, rtol=1e-5)


def test_bulk_is_the_scatter_of_a_t_distribution(key):
    """Data from a t of three degrees, whose covariance is three times its scatter matrix, give the
    scatter back.
    """
    key_normal, key_gamma = jax.random.split(key)
    root = jnp.array([[2.0, 0.0], [1.0, 0.5]])
    noise = jax.random.normal(key_normal, (40_000, 2)) / jnp.sqrt(
        jax.random.chisquare(key_gamma, 3, (40_000, 1)) / 3
    )
    bulk = bulk_root(5.0 + noise @ root.T)
    # Every entry's standard error is under 2 % of the larger variance.
    np.testing.assert_allclose(bulk @ bulk.T, root @ root.T, atol=5 * 0.02 * 5)
    assert np.linalg.norm(np.cov((noise @ root.T).T)) > 2 * np.linalg.norm(bulk @ bulk.T)


def test_bulk_turns_with_the_particles(key):
    z = jax.random.normal(key, (500, 3)) ** 3
    turn = jax.random.orthogonal(jax.random.key(1), 3)
    here, there = bulk_root(z), bulk_root(z @ turn.T)
    np.testing.assert_allclose(there @ there.T, turn @ here @ here.T @ turn.T, rtol=1e-3, atol=1e-4)


def kl(root, covariance):
    """KL(N(0, root rootᵀ) ‖ N(0, covariance)) both ways."""
    there = np.linalg.solve(covariance, root @ root.T)
    return 0.5 * (np.trace(there) + np.trace(np.linalg.inv(there)) - 2 * len(root))


def test_few_particles_say_what_is_wide_and_no_more():
    """150 particles in 100 dimensions, one direction ten times as wide as the others: the shrunk
    covariance is near the true one, where the sample's is not. With few particles the metric of
    moves is that one.
    """
    rng, dim = np.random.default_rng(3), 100
    direction = rng.normal(size=dim)
    direction /= np.linalg.norm(direction)
    covariance = np.eye(dim) + 99.0 * np.outer(direction, direction)
    z = rng.normal(size=(150, dim)) @ np.linalg.cholesky(covariance).T
    assert kl(shrunk_root(z), covariance) < 20
    assert kl(np.linalg.cholesky(np.cov(z.T)), covariance) > 100
    assert kl(bulk_root(z), covariance) < 20


@pytest.mark.parametrize("dim", [45, 55])
def test_bulk_of_a_funnel_is_that_of_its_middle(dim):
    """500 draws, more and fewer than ten for each dimension: the width of x_i given v is e^(v/2),
    so in the middle it is one, and e^2.25 in the covariance.
    """
    rng = np.random.default_rng(0)
    v = 3.0 * rng.normal(size=(500, 1))
    z = np.concatenate([v, np.exp(v / 2) * rng.normal(size=(500, dim - 1))], axis=1)
    widths = np.linalg.norm(bulk_root(z)[1:], axis=1)
    assert 0.6 < np.median(widths) < 1.7
    assert np.median(z[:, 1:].std(axis=0)) > 4


def test_a_shrunk_covariance_stays_near_a_root_that_is_right():
    """Scales from 10⁻³ to 10³, turned: in their own coordinates there is nothing to learn."""
    rng, dim = np.random.default_rng(5), 60
    turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    covariance = turn @ np.diag(np.logspace(-6, 6, dim)) @ turn.T
    root = np.linalg.cholesky(covariance)
    z = 7.0 + rng.normal(size=(200, dim)) @ root.T
    there = np.linalg.solve(root, shrunk_root(z, root))
    assert kl(there, np.eye(dim)) < 5


def test_whitened_data_have_unit_covariance(key):
    z = (
        jax.random.normal(key, (3000, 3))
        @ jnp.array([[2.0, 0.0, 0.0], [1.0, 0.3, 0.0], [0.0, 5.0, 1.0]])
        + 4.0
    )
    mean, root, u = whiten(z)
    np.testing.assert_allclose(np.cov(u.T), np.eye(3), atol=0.02)
    np.testing.assert_allclose(mean + u @ root.T, z, rtol=1e-3, atol=1e-3)
