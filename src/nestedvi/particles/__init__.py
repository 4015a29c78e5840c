"""Particles in bulk: weights, resampling, ancestors.

It refuses to know densities and kernels.
"""

from nestedvi.particles.genealogy import distinct_ancestors, lineage, trajectories
from nestedvi.particles.resampling import (
    SCHEMES,
    AbstractScheme,
    Multinomial,
    Particles,
    Resampling,
    Residual,
    Stratified,
    Systematic,
)
from nestedvi.particles.weights import ess, khat, log_Z_hat, log_Z_hat_stderr, normalise

__all__ = [
    "SCHEMES",
    "AbstractScheme",
    "Multinomial",
    "Particles",
    "Resampling",
    "Residual",
    "Stratified",
    "Systematic",
    "distinct_ancestors",
    "ess",
    "khat",
    "lineage",
    "log_Z_hat",
    "log_Z_hat_stderr",
    "normalise",
    "trajectories",
]
