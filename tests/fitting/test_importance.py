"""Weighted draws, and bases that are fitted to their own: closed forms of Gaussian targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.mixtures import StudentMixture
from nestedvi.densities.products import StudentProducts
from nestedvi.fitting import importance
from nestedvi.fitting.importance import (
    Trial,
    _best,
    base_at_modes,
    draw_many_weighted,
    draw_weighted,
    fit_base,
    products_at_modes,
    refit,
    weigh,
)
from nestedvi.fitting.modes import Modes

COVARIANCE = np.array([[2.0, 0.9], [0.9, 0.6]])
ROOT = np.linalg.cholesky(COVARIANCE)


def log_gaussian(z):
    away = jnp.linalg.solve(jnp.asarray(ROOT, z.dtype), z - 1.0)
    return -0.5 * jnp.sum(away**2)


def test_a_wrong_base_becomes_right():
    """From a base of other place and shape: the share of draws rises, and log Z is the target's."""
    start = StudentMixture(jnp.zeros((1, 2)), 2.0 * jnp.eye(2)[None], jnp.zeros(1))
    trial = fit_base(jax.random.key(0), start, nvi.Density(log_gaussian), num=4000, good=0.85)
    exact = np.log(2 * np.pi) + np.log(np.diag(ROOT)).sum()
    error = np.sqrt((1 / trial.share - 1) / 4000)
    assert trial.share > 0.7 and trial.khat < 0.5 and trial.draws > 4000
    assert abs(trial.log_Z_hat - exact) < 5 * error


def mean_log_density(base, z, log_ratio):
    w = np.exp(log_ratio) / np.exp(log_ratio).sum()
    return w @ base.log_prob_many(z)


@pytest.mark.slow
@pytest.mark.parametrize("freedom, kind", [(2, (0.9, 2)), (1, (0.9, 1)), (200, (0.3, 5))])
def test_weighted_draws_give_the_targets_tails_and_scatter(freedom, kind, x64):
    """Draws of a t distribution: the tails are found,
    the centre and the scatter are those of the distribution, and every step is likelier.
    """
    rng, num = np.random.default_rng(1), 20_000
    root = np.array([[2.0, 0.0], [1.0, 0.5]])
    z = rng.normal(size=(num, 2)) @ root.T / np.sqrt(rng.chisquare(freedom, (num, 1)) / freedom)
    base = StudentMixture(jnp.ones((1, 2)), 3.0 * jnp.eye(2)[None], jnp.zeros(1))
    seen = [mean_log_density(base, z, np.zeros(num))]
    for _ in range(40):
        base = refit(base, z, np.zeros(num))
        seen.append(mean_log_density(base, z, np.zeros(num)))
    np.testing.assert_allclose((base.tails, base.freedom), kind)
    assert np.all(np.diff(seen) > -1e-3)
    # The Gaussian part of a t mixture and its tails share one scatter: near that of either.
    scatter = np.asarray(base.roots[0] @ base.roots[0].T) / (root @ root.T)
    np.testing.assert_allclose(scatter, 1.0, atol=0.15)
    np.testing.assert_allclose(base.means[0], 0.0, atol=0.1)


def test_weights_move_the_centre(x64):
    """Draws of N(0, I) with weights e^{z_1}: the target is N((1, 0), I)."""
    rng, num = np.random.default_rng(1), 20_000
    z = rng.normal(size=(num, 2))
    base = StudentMixture(jnp.zeros((1, 2)), jnp.eye(2)[None], jnp.zeros(1))
    for _ in range(20):
        base = refit(base, z, z[:, 0])
    np.testing.assert_allclose(base.means[0], [1.0, 0.0], atol=0.05)


def test_negligible_modes_are_left_out():
    roots = np.broadcast_to(np.eye(2), (3, 2, 2))
    modes = Modes(np.arange(6.0).reshape(3, 2), np.array([0.0, -1.0, -40.0]), roots, 0)
    base = base_at_modes(modes, jnp.float32)
    np.testing.assert_allclose(base.means, [[0, 1], [2, 3]])
    np.testing.assert_allclose(
        jax.nn.softmax(base.log_weights), [1 / (1 + np.exp(-1)), 1 / (1 + np.e)], rtol=1e-6
    )


def test_few_draws_leave_a_good_covariance_alone(x64):
    """Forty draws of a Gaussian in twenty dimensions, whose covariance the base has: a covariance
    of their own would be far worse for new draws than what is kept.
    """
    rng = np.random.default_rng(2)
    z = rng.normal(size=(40, 20))
    base = StudentMixture(jnp.zeros((1, 20)), jnp.eye(20)[None], jnp.zeros(1))
    fitted = refit(base, z, np.zeros(40))
    covariance = fitted.roots[0] @ fitted.roots[0].T
    assert np.linalg.cond(covariance) < 4 < 10 < np.linalg.cond(np.cov(z.T))


def test_products_at_modes_are_as_curved_as_the_density(x64):
    root = np.array([[2.0, 0.0], [1.0, 0.5]])
    modes = Modes(np.ones((1, 2)), np.zeros(1), root[None], 0)
    base = products_at_modes(modes, 3, jnp.float64)
    curvature = -np.diag(jax.hessian(base.log_gamma)(jnp.ones(2)))
    np.testing.assert_allclose(curvature, np.diag(np.linalg.inv(root @ root.T)))


def test_products_find_the_scales_of_their_coordinates(x64):
    """Draws of independent t coordinates: places and scales are found, coordinate by coordinate."""
    rng, num = np.random.default_rng(0), 20_000
    z = 1.0 + np.array([0.3, 4.0]) * rng.standard_t(2, size=(num, 2))
    base = StudentProducts(jnp.zeros((1, 2)), jnp.ones((1, 2)), jnp.zeros(1), freedom=2)
    for _ in range(40):
        base = refit(base, z, np.zeros(num))
    np.testing.assert_allclose(base.scales[0], [0.3, 4.0], rtol=0.05)
    np.testing.assert_allclose(base.means[0], 1.0, atol=0.15)


def test_a_base_that_misses_a_mode_is_not_the_best():
    """It keeps all of its draws, and its Ẑ is half of another's."""

    def trial(share, log_Z):
        return Trial(None, log_Z, share, 0.0, 0.0, 1000)

    assert _best([trial(0.3, 0.0), trial(0.99, -0.7)], 1000).share == 0.3
    assert _best([trial(0.3, 0.0), trial(0.99, -0.05)], 1000).share == 0.99


@pytest.mark.parametrize(("least", "rounds"), [(0.0, 3), (0.01, 2)])
def test_a_hopeless_fit_ends_early(least, rounds):
    """Coordinates that depend on each other as no product does keep next to nothing, in as many
    rounds as are given to them.
    """
    target = nvi.Density(lambda z: -0.5 * jnp.sum(z**2) - 5e5 * jnp.sum((z[1:] - z[:-1]) ** 2))
    base = StudentProducts(jnp.zeros((1, 4)), jnp.ones((1, 4)), jnp.zeros(1), freedom=4)
    trial = fit_base(jax.random.key(0), base, target, num=500, good=0.6, least=least)
    assert trial.share < 0.01 and trial.draws >= 500 * rounds
    assert (trial.draws == 1000) == (least > 0)


def test_a_component_without_draws_keeps_its_place(x64):
    """All draws are of the first component; the second sees only its own faint tails at them."""
    means, roots = jnp.array([[0.0] * 8, [4.2] * 8]), jnp.stack([jnp.eye(8), 0.3 * jnp.eye(8)])
    z = np.random.default_rng(0).normal(size=(500, 8))
    refitted = refit(StudentMixture(means, roots, jnp.zeros(2)), z, np.zeros(500))
    np.testing.assert_array_equal(refitted.means[1], means[1])
    np.testing.assert_array_equal(refitted.roots[1], roots[1])


def test_ratios_are_of_the_normalised_base(key, x64):
    base = nvi.densities.Scaled(nvi.DiagonalNormal(jnp.zeros(2), 2.0), 1.7)
    target = nvi.DiagonalNormal(jnp.ones(2), 1.0)
    z, log_ratio = draw_weighted(key, base, target, 50)
    normal = nvi.DiagonalNormal(jnp.zeros(2), 2.0)
    expected = jax.vmap(target.log_gamma)(z) - jax.vmap(normal.log_gamma)(z)
    np.testing.assert_allclose(log_ratio, expected, rtol=1e-12)


def test_no_mass_can_be_multiplied_by_zero():
    base = nvi.DiagonalNormal(jnp.zeros(1), 1.0)
    for nothing in (-jnp.inf, jnp.nan):
        target = nvi.Density(lambda z, x=nothing: jnp.where(z[0] > 0, 0.0, x))
        ratio = weigh(base, target, np.array([[-1.0], [1.0]], np.float32))
        assert 0 * ratio[0] == 0 and ratio[0] < -1e29 and abs(ratio[1]) < 10


def test_an_accelerator_draws_and_weights_at_once(monkeypatch, x64):
    """Its draws are of the base and their ratios as on the host; Ẑ is the target's."""
    base = StudentMixture(jnp.ones((1, 2)), 1.1 * jnp.asarray(ROOT)[None], jnp.zeros(1))
    target, num = nvi.Density(log_gaussian), 20_000
    monkeypatch.setattr(importance, "is_on_host", lambda: False)
    z, log_ratio = draw_many_weighted(jax.random.key(0), base, target, num)
    np.testing.assert_allclose(log_ratio, weigh(base, target, z), atol=1e-9)
    w, exact = np.exp(log_ratio), 2 * np.pi * np.prod(np.diag(ROOT))
    assert abs(w.mean() - exact) < 4 * w.std() / num**0.5
    covariance = 1.1**2 * COVARIANCE * (0.7 + 0.3 * 5 / 3)
    assert np.abs(np.cov(z.T) / covariance - 1).max() < 0.1
