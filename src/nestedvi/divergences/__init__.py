"""A level's terms become a gradient. The only home of estimator algebra; it refuses to know
samplers and optimisers.
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
