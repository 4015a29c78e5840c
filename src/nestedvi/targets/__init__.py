"""Targets with known normalisers: densities by name, their data and their log Z."""

from nestedvi.targets.bayesian import Brownian, LogisticRegression
from nestedvi.targets.classic import (
    TARGETS,
    Funnel,
    ManyWell,
    Rings,
    Rotated,
    Target,
    TwoMoons,
    get_target,
    gmm40,
    ring,
    ring_modes,
    rotated,
)

__all__ = [
    "TARGETS",
    "Brownian",
    "Funnel",
    "LogisticRegression",
    "ManyWell",
    "Rings",
    "Rotated",
    "Target",
    "TwoMoons",
    "get_target",
    "gmm40",
    "ring",
    "ring_modes",
    "rotated",
]
