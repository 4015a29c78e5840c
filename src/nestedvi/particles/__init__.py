"""Particles in bulk, after a kernel moved them and before a level's gradient is taken: weights,
resampling, ancestors. It refuses to know densities.
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
