"""Weighted draws: log ratios against the densities themselves, and no mass as a number."""

import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.fitting.draws import draw_weighted, weigh


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
