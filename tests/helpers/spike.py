"""Half of the mass in a narrow part of a wide density, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from nestedvi.densities.base import Density


def spike_in_slab(dim, sd, place):
    """½ N(place, sd² I) + ½ N(0, I): log Z is zero."""

    def log_gamma(z):
        spike = -0.5 * jnp.sum((z - place) ** 2) / sd**2 - dim * np.log(sd)
        both = jnp.stack([spike, -0.5 * jnp.sum(z**2)])
        return jax.nn.logsumexp(both) - np.log(2.0) - 0.5 * dim * np.log(2 * np.pi)

    return Density(log_gamma)


def well_in_slab(dim, place, volume):
    """A standard Gaussian, and as much mass again in a ball around `place` in which the Gaussian
    has `volume` of its own: no gradient leads there. Z is 2. The target and the ball's radius.
    """
    radius = np.sqrt(stats.ncx2(dim, dim * place**2).ppf(volume))
    depth = np.log1p(1 / volume)

    def log_gamma(z):
        inside = jnp.sum((z - place) ** 2) < radius**2
        return jnp.where(inside, depth, 0.0) - 0.5 * jnp.sum(z**2) - 0.5 * dim * np.log(2 * np.pi)

    return Density(log_gamma), radius
