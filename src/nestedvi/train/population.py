"""The particles that level-parallel training keeps between its steps, and their weights under newer
parameters. It refuses to know levels and gradients.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi.particles.resampling import Particles
from nestedvi.paths.base import AbstractPath

__all__ = ["Population", "reweight"]


class Population(NamedTuple):
    """The particles that left levels 1 … K-1 at the last step, and the path's arrays of that time:
    not only its θ, because levels may share learned parameters of the path.
    """

    particles: Particles
    path: PyTree

    def old_path(self, path: AbstractPath) -> AbstractPath:
        """The path of that time; `path` is that of now."""
        return eqx.combine(self.path, eqx.filter(path, eqx.is_array, inverse=True))


def reweight(
    particles: Particles,
    old_path: AbstractPath,
    path: AbstractPath,
    old_theta: PyTree,
    theta: PyTree,
) -> Particles:
    """Particles were made under slightly older θ; the factor γ_k(z; θ now)/γ_k(z; θ then) keeps
    them properly weighted for the γ_k of now.
    """

    def log_gamma(path: AbstractPath, theta: PyTree):
        return jax.vmap(lambda s: path.log_gamma_prev(theta, s))(particles.stats)

    log_new, log_old = log_gamma(path, theta), log_gamma(old_path, old_theta)
    gone = jnp.isneginf(log_old) | jnp.isneginf(particles.log_w)
    log_w = jnp.where(gone, -jnp.inf, particles.log_w + log_new - jnp.where(gone, 0.0, log_old))
    return particles._replace(log_w=log_w)
