"""Targets by name: a density, its data, its dimension, its log Z and where that number is from.

It refuses targets whose log Z is not known.
"""

from nestedvi.targets.bayesian import Brownian, LogisticRegression, Seeds
from nestedvi.targets.catalogue import TARGETS, Target, get_target, rotated
from nestedvi.targets.classic import Funnel, ManyWell, Rings, TwoMoons, gmm40, ring, ring_modes

__all__ = [
    "TARGETS",
    "Brownian",
    "Funnel",
    "LogisticRegression",
    "ManyWell",
    "Rings",
    "Seeds",
    "Target",
    "TwoMoons",
    "get_target",
    "gmm40",
    "ring",
    "ring_modes",
    "rotated",
]
