"""Targets with known normalisers: densities by name, their data and their log Z. How to
sample them is not known here.
"""

from nestedvi.targets.bayesian import Brownian, LogisticRegression
from nestedvi.targets.catalogue import TARGETS, Target, get_target, rotated
from nestedvi.targets.classic import Funnel, ManyWell, Rings, TwoMoons, gmm40, ring, ring_modes

__all__ = [
    "TARGETS",
    "Brownian",
    "Funnel",
    "LogisticRegression",
    "ManyWell",
    "Rings",
    "Target",
    "TwoMoons",
    "get_target",
    "gmm40",
    "ring",
    "ring_modes",
    "rotated",
]
