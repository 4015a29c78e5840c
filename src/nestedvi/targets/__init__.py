"""Targets by name: a density, its data, its dimension, its log Z and where that number is from.

It refuses a log Z that nobody can check: each has a source, and none stands where there is none.
"""

from nestedvi.targets.bayesian import Brownian, LogisticRegression, Seeds
from nestedvi.targets.catalogue import TARGETS, Target, get_target, rotated
from nestedvi.targets.classic import Funnel, ManyWell, Rings, TwoMoons, gmm40, ring, ring_modes
from nestedvi.targets.cox import CoxProcess
from nestedvi.targets.evidences import EVIDENCES, Evidence
from nestedvi.targets.regressions import (
    HierarchicalCredit,
    SparseCredit,
    german_credit,
    german_credit_raw,
    german_credit_wide,
    ionosphere,
    sonar,
)
from nestedvi.targets.volatility import StochasticVolatility

__all__ = [
    "EVIDENCES",
    "TARGETS",
    "Brownian",
    "CoxProcess",
    "Evidence",
    "Funnel",
    "HierarchicalCredit",
    "LogisticRegression",
    "ManyWell",
    "Rings",
    "Seeds",
    "SparseCredit",
    "StochasticVolatility",
    "Target",
    "TwoMoons",
    "german_credit",
    "german_credit_raw",
    "german_credit_wide",
    "get_target",
    "gmm40",
    "ionosphere",
    "ring",
    "ring_modes",
    "rotated",
    "sonar",
]
