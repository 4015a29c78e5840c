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
    density = AutoregressiveMixture(jax.random.normal(key, (200, dim)), key=key, components=3, hidden=4)
    leaves, treedef = jax.tree.flatten(density)
    keys = jax.random.split(key, len(leaves))
    density = jax.tree.unflatten(
        treedef, [x + 0.3 * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    )
    # Small slopes: widths that grow exponentially would leave any grid.
    return eqx.tree_at(lambda d: (d.wide, d.linear), density, (jnp.asarray(wide), 0.2 * density.linear))


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
    for function in (lambda z: z[:, 0] > 0.3, lambda z: z[:, 1] > z[:, 0], lambda z: np.abs(z[:, 1]) < 0.5):
        share = p[function(np.asarray(points))].sum()
        assert 0.05 < share < 0.95
        assert abs(function(draws).mean() - share) < 5 * np.sqrt(share * (1 - share) / num) + 5e-3


def test_without_wide_draws_it_is_what_is_fitted(key):
    density = some(key, 0.0, dim=3)
    z = jax.random.normal(key, (3,))
    np.testing.assert_allclose(density.log_gamma(z), density.log_core(z), rtol=1e-12)


def test_a_width_that_grows_along_another_coordinate_goes_on_beyond_the_data(key):
    """y_2 = e^{y_1} s: with a linear log width of slope one the conditional's width at y_1 = −6 is e^{-6} of that at 0."""
    density = AutoregressiveMixture(jax.random.normal(key, (500, 2)), key=key)
    density = eqx.tree_at(lambda d: d.linear, density, density.linear.at[1, 0, 1].set(1.0))
    at = lambda y0, y1: float(density.log_core(jnp.array([y0, y1])) - density.log_core(jnp.array([y0, 0.0])))  # noqa: E731
    for s in (0.5, 1.5):
        np.testing.assert_allclose(at(-6.0, np.exp(-6.0) * s), at(0.0, s), rtol=1e-6)
