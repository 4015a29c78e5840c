"""The autoregressive mixture against quadrature and its own draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.densities.autoregressive import AutoregressiveMixture

pytestmark = pytest.mark.usefixtures("x64")


def some(key, wide, dim=2):
    """Parameters away from the start, where the coordinates do not depend on each other."""
    density = AutoregressiveMixture(
        jax.random.normal(key, (200, dim)), key=key, components=3, hidden=4
    )
    leaves, treedef = jax.tree.flatten(density)
    keys = jax.random.split(key, len(leaves))
    density = jax.tree.unflatten(
        treedef,
        [
            x + 0.3 * jax.random.normal(k, x.shape, x.dtype)
            for k, x in zip(keys, leaves, strict=True)
        ],
    )
    # Small slopes: widths that grow exponentially would leave any grid.
    settings = jax.scipy.special.logit(jnp.asarray(wide)), 0.2 * density.scale_slopes
    return eqx.tree_at(lambda d: (d.wide_logit, d.scale_slopes), density, settings)


@pytest.mark.parametrize("wide", [0.0, 0.3])
def test_it_integrates_to_one_and_is_the_density_of_its_draws(key, wide):
    density = some(key, wide)
    grid = np.linspace(-25.0, 25.0, 801)
    step = grid[1] - grid[0]
    points = jnp.asarray(np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2))
    p = np.exp(jax.jit(jax.vmap(density.log_gamma))(points)) * step**2
    np.testing.assert_allclose(p.sum(), 1.0, rtol=2e-3)
    num = 20_000
    draws = np.asarray(jax.jit(jax.vmap(density.sample))(jax.random.split(key, num)))
    # Borders halfway between points of the grid.
    regions = (
        lambda z: z[:, 0] > 4.5 * step,
        lambda z: z[:, 1] > z[:, 0] + step / 2,
        lambda z: np.abs(z[:, 1]) < 8.5 * step,
    )
    for function in regions:
        share = p[function(np.asarray(points))].sum()
        assert 0.05 < share < 0.95
        assert abs(function(draws).mean() - share) < 5 * np.sqrt(share * (1 - share) / num) + 5e-3


@pytest.mark.slow
def test_without_wide_draws_it_is_what_is_fitted(key):
    density = some(key, 0.0, dim=3)
    z = jax.random.normal(key, (3,))
    np.testing.assert_allclose(density.log_gamma(z), density.log_core(z), rtol=1e-12)


def test_a_network_that_has_learned_nothing_may_be_left_out(key):
    density, y = some(key, 0.0, dim=3), jnp.array([0.3, -1.0, 0.7])
    new = eqx.tree_at(lambda d: d.heads, density, jnp.zeros_like(density.heads))
    np.testing.assert_allclose(new.log_core(y, has_network=False), new.log_core(y), rtol=1e-12)
    assert abs(density.log_core(y, has_network=False) - density.log_core(y)) > 1e-3


def test_a_width_that_grows_along_another_coordinate_goes_on_beyond_the_data(key):
    """y_2 = e^{y_1} s: with a linear log width of slope one the conditional's width at y_1 = −6 is
    e^{-6} of that at 0.
    """
    density = AutoregressiveMixture(jax.random.normal(key, (500, 2)), key=key)
    density = eqx.tree_at(
        lambda d: d.scale_slopes, density, density.scale_slopes.at[1, 0, 0].set(1.0)
    )

    def at(y0, y1):
        return float(density.log_core(jnp.array([y0, y1])) - density.log_core(jnp.array([y0, 0.0])))

    for s in (0.5, 1.5):
        np.testing.assert_allclose(at(-6.0, np.exp(-6.0) * s), at(0.0, s), rtol=1e-6)


def test_place_and_width_are_those_of_two_experts_together(key):
    """A prior of precision e^{−y_1} at 0 and a likelihood e^{y_1} times as precise at 2: precisions
    add, places are weighted by them. The density of y_2 around that place, in units of that width,
    is the same for every y_1."""
    density = AutoregressiveMixture(jax.random.normal(key, (500, 2)), key=key)
    slopes = density.scale_slopes.at[1, 0].set(jnp.array([0.5, 0.0, 1.0]))
    bias = density.scale_bias.at[1].set(jnp.array([0.0, 2.0, 0.0]))
    density = eqx.tree_at(lambda d: (d.scale_slopes, d.scale_bias), density, (slopes, bias))

    def standardised(y_1, s):
        prior, likelihood = np.exp(-y_1), np.exp(-y_1) * np.exp(y_1)
        width, place = (prior + likelihood) ** -0.5, 2.0 * likelihood / (prior + likelihood)
        y_2 = place + width * s
        return float(
            density.log_core(jnp.array([y_1, y_2])) - density.log_core(jnp.array([y_1, place]))
        )

    for s in (-1.0, 0.4, 2.0):
        np.testing.assert_allclose(
            [standardised(y_1, s) for y_1 in (-4.0, 1.0, 3.0)], standardised(0.0, s), rtol=1e-6
        )
