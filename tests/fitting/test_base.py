"""Bases from particles: directions, mixtures, how near a fitted base is to a density whose entropy
is known, and places by weighted least squares.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.densities.affine import Affine
from nestedvi.densities.autoregressive import AutoregressiveMixture
from nestedvi.fitting.base import refine_places, refit_base


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


NARROW = -3.0
SLOPE, CONSTANT = 0.3, -0.02


def rows(seed, num):
    """y_2 ~ N(0.3 y_1 − 0.02, e^{2 y_1}): in the neck its width is a twentieth."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=num)
    second = SLOPE * first + CONSTANT + np.exp(first) * rng.normal(size=num)
    return np.column_stack([first, second]).astype(np.float32)


@pytest.fixture
def right_widths(key):
    """Conditionals with the right shapes and widths, and places that are all zero."""
    density = AutoregressiveMixture(rows(0, 500), key=key, components=1)
    # Of one component: its share, mean and log width.
    head_bias = jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    scale_slopes = density.scale_slopes.at[1, 0, 0].set(1.0)
    log_scale = 0.5 * np.log1p(np.exp(density.scale_bias[0, 2]))
    scale_bias = density.scale_bias.at[:, 0].set(log_scale)
    return eqx.tree_at(
        lambda d: (d.head_bias, d.scale_slopes, d.scale_bias),
        density,
        (head_bias, scale_slopes, scale_bias),
    )


def place_at(density, first):
    """Of the second coordinate."""
    return float(density.conditionals(jnp.array([first, 0.0])).mean[1, 0])


def test_places_are_those_of_weighted_least_squares(right_widths):
    """The same as the closed form, Σ w x xᵀ β = Σ w x y with w = e^{−2 y_1}."""
    y = rows(1, 4000)
    with jax.default_matmul_precision("highest"):
        refined = refine_places(right_widths, y, rows(2, 4000))
    first, second = y.T.astype(np.float64)
    given, weight = np.column_stack([first, np.ones(len(y))]), np.exp(-2 * first)
    beta = np.linalg.solve(given.T @ (weight[:, None] * given), given.T @ (weight * second))
    for x in (NARROW, 0.0, 2.0):
        assert abs(place_at(refined, x) - beta @ [x, 1.0]) < 1e-3 * np.exp(NARROW)


def test_places_are_exact_where_the_conditional_is_narrow(right_widths):
    """Within five standard errors of the truth in the neck, which are less than a width there."""
    y = rows(1, 4000)
    refined = refine_places(right_widths, y, rows(2, 4000))
    first = y[:, 0].astype(np.float64)
    given = np.column_stack([first, np.ones(len(y))])
    covariance = np.linalg.inv(given.T @ (np.exp(-2 * first)[:, None] * given))
    at = np.array([NARROW, 1.0])
    stderr = np.sqrt(at @ covariance @ at)
    off = abs(place_at(refined, NARROW) - (SLOPE * NARROW + CONSTANT))
    assert off < 5 * stderr < np.exp(NARROW)
    assert abs(place_at(right_widths, NARROW) - (SLOPE * NARROW + CONSTANT)) > 10 * np.exp(NARROW)


def test_what_held_out_rows_speak_against_is_left(right_widths):
    """Rows that were held out have other places: the coordinate keeps its own."""
    other = rows(2, 4000) * np.array([1.0, 0.0], np.float32)
    refined = refine_places(right_widths, rows(1, 4000), other)
    assert place_at(refined, NARROW) == place_at(right_widths, NARROW)


def test_shapes_and_widths_stay(right_widths):
    refined = refine_places(right_widths, rows(1, 1000), rows(2, 1000))
    point = jnp.array([0.7, -1.1])
    before, after = (jax.device_get(d.conditionals(point)) for d in (right_widths, refined))
    np.testing.assert_array_equal(after.log_width, before.log_width)
    np.testing.assert_array_equal(after.log_share, before.log_share)


def test_places_of_rows_that_are_no_numbers_are_left(right_widths):
    """One row that is NaN: least squares fail, and places stay what they were."""
    y = rows(1, 1000)
    y[7] = np.nan
    refined = refine_places(right_widths, y, rows(2, 1000))
    assert place_at(refined, NARROW) == place_at(right_widths, NARROW)
