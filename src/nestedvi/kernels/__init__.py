"""Transitions move z_{k-1} to z_k and score the way there (q_k) and back (r_{k-1}), one particle at
a time. They refuse to decide which gradients flow.
"""

from nestedvi.kernels.base import (
    AbstractKernel,
    AbstractTransition,
    Context,
    Independent,
    Scores,
    Transition,
    stack,
)
from nestedvi.kernels.blackjax import blackjax_move
from nestedvi.kernels.chain import Chain
from nestedvi.kernels.discrete import CategoricalKernel, DistributionKernel
from nestedvi.kernels.flowjax import BijectionFlow
from nestedvi.kernels.gaussian import GaussianKernel, ResidualGaussian
from nestedvi.kernels.hmc import Hamiltonian
from nestedvi.kernels.joint import Joint
from nestedvi.kernels.langevin import DriftNetwork, LangevinKernel, LangevinTransition
from nestedvi.kernels.mcmc import Invariant, RandomWalk
from nestedvi.kernels.planar import PlanarDensity, PlanarFlow
from nestedvi.kernels.product import Append, Field, NextState, ProductKernel

__all__ = [
    "AbstractKernel",
    "AbstractTransition",
    "Append",
    "BijectionFlow",
    "CategoricalKernel",
    "Chain",
    "Context",
    "DistributionKernel",
    "DriftNetwork",
    "Field",
    "GaussianKernel",
    "Hamiltonian",
    "Independent",
    "Invariant",
    "Joint",
    "LangevinKernel",
    "LangevinTransition",
    "NextState",
    "PlanarDensity",
    "PlanarFlow",
    "ProductKernel",
    "RandomWalk",
    "ResidualGaussian",
    "Scores",
    "Transition",
    "blackjax_move",
    "stack",
]
