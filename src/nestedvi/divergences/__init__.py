"""Divergences: the terms of a level become a gradient. All estimator algebra is here.

It refuses to loop over levels and to update parameters.
"""

from nestedvi.divergences.exact import ExactLevel
from nestedvi.divergences.f import (
    DIVERGENCES,
    AbstractDivergence,
    FDivergence,
    ForwardKL,
    ReverseKL,
    alpha_divergence,
    chi_squared,
    jensen_shannon,
)

__all__ = [
    "DIVERGENCES",
    "AbstractDivergence",
    "ExactLevel",
    "FDivergence",
    "ForwardKL",
    "ReverseKL",
    "alpha_divergence",
    "chi_squared",
    "jensen_shannon",
]
