"""Bases from particles: directions, mixtures, and how near a fitted base is to a density whose
entropy is known.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.densities.affine import Affine
from nestedvi.densities.autoregressive import AutoregressiveMixture
from nestedvi.fitting.base import refit_base


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
def test_a_base_goes_on_from_the_one_before(turned_funnel):
    """From other draws it is at least as near to the target, and its family weights and its share
    of wide draws are its own.
    """
    draw, log_p, base = turned_funnel
    more = refit_base(jax.random.key(8), draw(4, 6000), draw(5, 1000), wide=0.1, before=base)
    z = draw(2, 4000)
    gain = jax.vmap(more.log_gamma)(z) - jax.vmap(base.log_gamma)(z)
    assert float(gain.mean()) > -2 * float(gain.std()) / len(gain) ** 0.5 - 0.02
    kl = float(jnp.mean(jax.vmap(log_p)(z) - jax.vmap(more.log_gamma)(z)))
    assert -0.02 < kl < 0.15
    wide = [float(jax.nn.sigmoid(b.parts[-1].part.part.wide_logit)) for b in (base, more)]
    np.testing.assert_allclose(wide, [0.05, 0.1], rtol=1e-5)


@pytest.mark.slow
def test_an_affine_image_knows_its_own_draws(key):
    """Wide draws along a steep funnel, and a coordinate that narrows in it: the density at z = A y
    is that at y, though z is rounded. With widths of thousands it would not be."""
    density = AutoregressiveMixture(jax.random.normal(key, (500, 4)), key=key)
    slopes = density.scale_slopes.at[1:, 0, 0].set(jnp.array([2.0, 2.0, -1.5]))
    density = eqx.tree_at(
        lambda d: (d.scale_slopes, d.wide_logit), density, (slopes, jnp.asarray(jnp.inf))
    )
    matrix = jnp.linalg.qr(jax.random.normal(key, (4, 4)))[0] @ jnp.diag(
        jnp.array([1.0, 3.0, 0.5, 2.0])
    )
    image = Affine(density, jnp.ones(4), matrix)
    keys = jax.random.split(key, 20_000)
    y, z = (jax.jit(jax.vmap(d.sample))(keys) for d in (density, image))
    direct = jax.jit(jax.vmap(density.log_gamma))(y) - jnp.linalg.slogdet(matrix)[1]
    assert np.quantile(np.abs(jax.jit(jax.vmap(image.log_gamma))(z) - direct), 0.999) < 1.0
