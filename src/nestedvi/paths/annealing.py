"""Geometric annealing γ_k = γ_1^{1-β_k} γ_K^{β_k} between an initial density and a target. Where β
comes from is the schedule's business.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Particle, PerLevel, Scalar
from nestedvi.densities.base import AbstractDensity, as_density, log_geometric
from nestedvi.paths.base import AbstractFixedSupportPath, trainable_fields
from nestedvi.paths.schedules import AbstractSchedule

__all__ = ["Annealing"]


class Annealing(AbstractFixedSupportPath):
    """γ_k(z) = base(z)^{1-β_k} target(z)^{β_k}; θ_k = β_k.

    A particle's statistics are (log base, log target): they do not depend on θ, so each is
    evaluated once a particle.

    Args:
        base: the density at β = 0; one that can be sampled, a NumPyro distribution, or a function
            of one particle.
        target: the density at β = 1, likewise.
        schedule: β_1 … β_K.

    Example:
        ```python
        base = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
        path = nvi.Annealing(base, nvi.targets.ring(), nvi.LearnedSchedule(8))
        path.log_density(0.5, path.stats(jnp.ones(2)))
        ```
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
        return log_geometric(theta, stats[0], stats[1])

    def precomputed(self) -> "Annealing":
        return Annealing(self.base.precomputed(), self.target.precomputed(), self.schedule)

    def trainable(self) -> PyTree:
        return trainable_fields(self, "schedule")
