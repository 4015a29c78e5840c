"""Paths give γ_{k-1} and γ_k, the densities on either side of level k. They refuse
to move particles.
"""

from nestedvi.paths.annealing import Annealing
from nestedvi.paths.base import AbstractFixedSupportPath, AbstractPath, AbstractPreparedPath
from nestedvi.paths.heuristics import AbstractHeuristic, Messages, NoHeuristic
from nestedvi.paths.schedules import (
    AbstractSchedule,
    GivenSchedule,
    LearnedSchedule,
    LinearSchedule,
)
from nestedvi.paths.sequence import DensitySequence, StackedDensities
from nestedvi.paths.state_space import (
    AbstractStateSpaceModel,
    Latent,
    StateSpace,
    Step,
    WithoutState,
)

__all__ = [
    "AbstractFixedSupportPath",
    "AbstractHeuristic",
    "AbstractPath",
    "AbstractPreparedPath",
    "AbstractSchedule",
    "AbstractStateSpaceModel",
    "Annealing",
    "DensitySequence",
    "GivenSchedule",
    "Latent",
    "LearnedSchedule",
    "LinearSchedule",
    "Messages",
    "NoHeuristic",
    "StackedDensities",
    "StateSpace",
    "Step",
    "WithoutState",
]
