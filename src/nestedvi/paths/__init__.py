"""Second station: paths give γ_{k-1} and γ_k, the densities on either side of level k."""

from nestedvi.paths.annealing import Annealing
from nestedvi.paths.base import AbstractFixedSupportPath, AbstractPath, AbstractPreparedPath
from nestedvi.paths.global_variables import (
    AbstractGlobalModel,
    AbstractMessages,
    GlobalStateSpace,
    Latent,
    Messages,
    NoMessages,
    WithoutState,
)
from nestedvi.paths.schedules import (
    AbstractSchedule,
    GivenSchedule,
    LearnedSchedule,
    LinearSchedule,
)
from nestedvi.paths.sequence import DensitySequence, StackedDensities
from nestedvi.paths.state_space import AbstractStateSpaceModel, NoHeuristic, StateSpace

__all__ = [
    "AbstractFixedSupportPath",
    "AbstractGlobalModel",
    "AbstractMessages",
    "AbstractPath",
    "AbstractPreparedPath",
    "AbstractSchedule",
    "AbstractStateSpaceModel",
    "Annealing",
    "DensitySequence",
    "GivenSchedule",
    "GlobalStateSpace",
    "Latent",
    "LearnedSchedule",
    "LinearSchedule",
    "Messages",
    "NoHeuristic",
    "NoMessages",
    "StackedDensities",
    "StateSpace",
    "WithoutState",
]
