"""Geometric annealing γ_k = γ_1^{1-β_k} γ_K^{β_k} between an initial density and a target."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Particle, PerLevel, Scalar
from nestedvi.densities.base import AbstractDensity, as_density
from nestedvi.paths.base import AbstractFixedSupportPath, trainable_fields
from nestedvi.paths.schedules import AbstractSchedule

__all__ = ["Annealing"]


def _power(beta: Scalar, log_density: Scalar) -> Scalar:
    """β log γ with 0 · (−inf) = 0; where γ is zero both derivatives are 0, so that a weight of zero
    silences them.
    """
    dead = jnp.isneginf(log_density)
    return jnp.where(
        dead, jnp.where(beta == 0, 0.0, -jnp.inf), beta * jnp.where(dead, 0.0, log_density)
    )


class Annealing(AbstractFixedSupportPath):
    """γ_k(z) = base(z)^{1-β_k} target(z)^{β_k}; θ_k = β_k.

    A particle's statistics are (log base, log target): they do not depend on θ, so each is
    evaluated once a particle.
    """

    base: AbstractDensity
    target: AbstractDensity
    schedule: AbstractSchedule

    def __init__(self, base: Any, target: Any, schedule: AbstractSchedule):
        self.base, self.target, self.schedule = as_density(base), as_density(target), schedule

    @property
    def num_levels(self) -> int:
        return self.schedule.num_levels

    def thetas(self) -> PerLevel:
        return self.schedule.betas()

    def stats(self, z: Particle) -> Float[Array, "2"]:
        return jnp.stack([self.base.log_gamma(z), self.target.log_gamma(z)])

    def log_density(self, theta: Scalar, stats: Float[Array, "2"]) -> Scalar:
        return _power(1 - theta, stats[0]) + _power(theta, stats[1])

    def trainable(self) -> PyTree:
        return trainable_fields(self, "schedule")
