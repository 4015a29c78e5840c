"""Paths in two dimensions whose densities are written down by hand."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi


def log_normal(z, loc, scale):
    """log N(z; loc, scale² I) by hand."""
    z = np.asarray(z, dtype=float)
    return float(
        np.sum(-0.5 * ((z - loc) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi))
    )


def quartic(z):
    return -0.1 * jnp.sum(z**4)


def annealing(schedule):
    return nvi.Annealing(nvi.DiagonalNormal(jnp.zeros(2), 3.0), quartic, schedule)


def normals():
    return [nvi.DiagonalNormal(jnp.full(2, float(k)), 1.0 + k) for k in range(4)]


def stacked(**options):
    make = eqx.filter_vmap(lambda k: nvi.DiagonalNormal(jnp.full(2, k), 1.0 + k))
    return nvi.paths.StackedDensities(make(jnp.arange(4.0)), **options)


def theta(path, k):
    thetas = path.thetas()
    return thetas[k] if type(thetas) is tuple else jax.tree.map(lambda x: x[k], thetas)
