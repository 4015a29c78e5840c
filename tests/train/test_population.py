"""Particles of older parameters, properly weighted for newer ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.particles.resampling import Particles
from nestedvi.paths.base import at_level
from nestedvi.train.population import Population, reweight


def path(width=2.0):
    initial, target = nvi.DiagonalNormal(jnp.zeros(1), width), nvi.DiagonalNormal(jnp.ones(1), 0.5)
    return nvi.Annealing(initial, target, nvi.LinearSchedule(3))


def test_the_factor_is_the_ratio_of_the_densities(x64):
    """From β = 1/2 to β = 1: a factor (target/base)^(1/2). Weight zero stays zero."""
    here, z = path(), jnp.array([[0.3], [-1.0], [2.0]])
    particles = Particles(z, jax.vmap(here.stats)(z), jnp.array([0.1, -jnp.inf, 1.0]))
    thetas = (at_level(here.thetas(), k) for k in (1, 2))
    weighted = reweight(particles, here, here, *thetas)
    for i in (0, 2):
        factor = 0.5 * (here.target.log_gamma(z[i]) - here.base.log_gamma(z[i]))
        np.testing.assert_allclose(weighted.log_w[i] - particles.log_w[i], factor, rtol=1e-9)
    assert np.isneginf(weighted.log_w[1])


def test_the_old_path_has_the_old_arrays():
    old, new, z = path(2.0), path(3.0), jnp.array([0.7])
    again = Population(None, eqx.filter(old, eqx.is_array)).old_path(new)
    assert again.base.log_gamma(z) == old.base.log_gamma(z) != new.base.log_gamma(z)
