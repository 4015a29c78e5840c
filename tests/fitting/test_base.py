"""Bases from particles: directions, mixtures, and how near a fitted base is to a density whose
entropy is known.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import Affine
from nestedvi.densities.autoregressive import AutoregressiveMixture
from nestedvi.fitting.base import refit_base
from nestedvi.fitting.directions import independent_directions, whiten
from nestedvi.fitting.mixtures import fit_mixture, stack_mixture


def test_whitened_data_have_unit_covariance(key):
    z = (
        jax.random.normal(key, (3000, 3))
        @ jnp.array([[2.0, 0.0, 0.0], [1.0, 0.3, 0.0], [0.0, 5.0, 1.0]])
        + 4.0
    )
    mean, root, u = map(jnp.float32, whiten(z))
    np.testing.assert_allclose(np.cov(u.T), np.eye(3), atol=0.02)
    np.testing.assert_allclose(mean + u @ root.T, z, rtol=1e-3, atol=1e-3)


def test_independent_directions_are_found_in_any_rotation(key):
    """Two two-point sources and a Gaussian, turned: both sources come out, and the Gaussian comes
    first.
    """
    key_s, key_g, key_q, key_ica = jax.random.split(key, 4)
    sources = 2.0 * jax.random.bernoulli(key_s, shape=(4000, 2)) - 1.0
    s = jnp.concatenate(
        [
            sources + 0.1 * jax.random.normal(key_q, sources.shape),
            jax.random.normal(key_g, (4000, 1)),
        ],
        axis=1,
    )
    turn = jnp.asarray(np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0], jnp.float32)
    u = jnp.float32(whiten(s @ turn)[2])
    rows = independent_directions(key_ica, u)
    np.testing.assert_allclose(rows @ rows.T, np.eye(3), atol=1e-4)
    match = np.abs(np.corrcoef((u @ rows.T).T, s.T)[:3, 3:])
    assert match[0, 2] > 0.99 and match[1:, :2].max(axis=1).min() > 0.99


def test_a_mixture_finds_separate_modes(key):
    modes = nvi.targets.ring()
    z = jax.vmap(modes.sample)(jax.random.split(key, 4000))
    found = fit_mixture(jax.random.key(1), z, 16)
    share = np.zeros(8)
    distance = np.linalg.norm(
        np.asarray(nvi.targets.ring_modes())[:, None] - np.asarray(found.means), axis=2
    )
    np.add.at(share, distance.argmin(axis=0), np.exp(found.log_weights))
    # Every mode has its share, and the whole fits as well as the truth does: KL within its own
    # error.
    np.testing.assert_allclose(share, 1 / 8, atol=0.03)
    fresh = jax.vmap(modes.sample)(jax.random.split(jax.random.key(2), 4000))
    log_ratio = jax.vmap(modes.log_gamma)(fresh) - modes.log_Z - jax.vmap(found.log_gamma)(fresh)
    assert -0.02 < float(log_ratio.mean()) < 0.1


def test_stacking_prefers_what_explains_held_out_data():
    log_parts = jnp.stack([jnp.zeros(100), jnp.full(100, -3.0)], axis=1)
    weights = np.exp(stack_mixture(log_parts))
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
    assert weights[0] > 0.99


@pytest.fixture(scope="module")
def turned_funnel():
    """A funnel of three dimensions in turned coordinates: exact draws, their log density, a base
    fitted to them.
    """
    turn = jnp.asarray(np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0], jnp.float32)

    def sample(key):
        noise = jax.random.normal(key, (3,))
        return turn.T @ jnp.concatenate([noise[:1] * 1.5, jnp.exp(0.75 * noise[0]) * noise[1:]])

    def log_p(z):
        y = turn @ z
        log_neck = -0.5 * (y[0] / 1.5) ** 2 - jnp.log(1.5)
        return (
            log_neck
            + jnp.sum(-0.5 * y[1:] ** 2 * jnp.exp(-y[0]) - 0.5 * y[0])
            - 1.5 * jnp.log(2 * jnp.pi)
        )

    def draw(seed, num):
        return jax.vmap(sample)(jax.random.split(jax.random.key(seed), num))

    return draw, log_p, refit_base(jax.random.key(9), draw(0, 6000), draw(1, 1000), wide=0.05)


@pytest.mark.slow
def test_a_refitted_base_is_near_the_target_in_any_rotation(turned_funnel):
    """KL(p ‖ q) on fresh draws is small, and a Gaussian's is not."""
    draw, log_p, base = turned_funnel
    z = draw(2, 4000)
    kl = float(jnp.mean(jax.vmap(log_p)(z) - jax.vmap(base.log_gamma)(z)))
    gaussian = float(jnp.mean(jax.vmap(log_p)(z) - jax.vmap(base.log_parts)(z)[:, 0]))
    assert -0.02 < kl < 0.15 < 0.5 < gaussian


@pytest.mark.slow
def test_a_refitted_base_draws_from_its_own_density(turned_funnel):
    """E_q[p/q] = 1 within five standard errors: draws and density agree, and no mass of p is
    missing.
    """
    _, log_p, base = turned_funnel
    z = jax.jit(jax.vmap(base.sample))(jax.random.split(jax.random.key(3), 8000))
    ratio = np.exp(np.asarray(jax.vmap(log_p)(z) - jax.vmap(base.log_gamma)(z)))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio)) and ratio.std() < 3


@pytest.mark.slow
def test_an_affine_image_knows_its_own_draws(key):
    """Wide draws along a steep funnel, and a coordinate that narrows in it: the density at z = A y
    is that at y, though z is rounded. With widths of thousands it would not be."""
    density = AutoregressiveMixture(jax.random.normal(key, (500, 4)), key=key)
    slopes = density.rule.at[1:, 0, 0].set(jnp.array([2.0, 2.0, -1.5]))
    density = eqx.tree_at(lambda d: (d.rule, d.wide_logit), density, (slopes, jnp.asarray(jnp.inf)))
    matrix = jnp.linalg.qr(jax.random.normal(key, (4, 4)))[0] @ jnp.diag(
        jnp.array([1.0, 3.0, 0.5, 2.0])
    )
    image = Affine(density, jnp.ones(4), matrix)
    keys = jax.random.split(key, 20_000)
    y, z = (jax.jit(jax.vmap(d.sample))(keys) for d in (density, image))
    direct = jax.jit(jax.vmap(density.log_gamma))(y) - jnp.linalg.slogdet(matrix)[1]
    assert np.quantile(np.abs(jax.jit(jax.vmap(image.log_gamma))(z) - direct), 0.999) < 1.0
