"""Nested variational inference: learn the parts of nested importance samplers, level by level."""

from nestedvi.densities.autoregressive import AutoregressiveMixture
from nestedvi.densities.base import (
    AbstractDensity,
    AbstractSampleable,
    Density,
    Numpyro,
    Scaled,
    as_density,
    as_sampleable,
)
from nestedvi.densities.compound import Affine, Experts, ScaleMixture
from nestedvi.densities.dirichlet import SymmetricDirichlet
from nestedvi.densities.empirical import Empirical
from nestedvi.densities.gaussian import CorrelatedMixture, DiagonalNormal, GaussianMixture
from nestedvi.densities.numpyro_model import NumpyroModel
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
from nestedvi.errors import (
    CheckpointError,
    DataError,
    DensityError,
    MissingScoreError,
    ModelError,
    NestedviWarning,
    NonFiniteGradientError,
    UnknownNameError,
)
from nestedvi.evaluation.evaluate import Evaluation, evaluate, upper_bound
from nestedvi.evaluation.instances import InstanceEvaluation, evaluate_instances
from nestedvi.fitting.base import refit_base
from nestedvi.inference.posterior import Expectation, Posterior
from nestedvi.inference.sample import sample
from nestedvi.inference.summary import Summary
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
from nestedvi.methods import KERNELS, METHODS, PATHS, Method, build, get_method
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
from nestedvi.paths.sequence import Sequential, StackedDensities
from nestedvi.paths.state_space import AbstractStateSpaceModel, NoHeuristic, StateSpace
from nestedvi.progress import ProgressBar, Reporter
from nestedvi.sampler.compose import compose, extend, propose, resample
from nestedvi.sampler.level import hold
from nestedvi.sampler.nested import NestedSampler, Run, Shared, Stacked, restart, run
from nestedvi.smc.random_walk import Tempered, tempered_smc
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
from nestedvi.train.amortised import AmortisedFit, AmortisedRecord, fit_amortised
from nestedvi.train.fit import Fit, Record, fit
from nestedvi.train.objective import Objective
from nestedvi.train.schedules import gradient

__all__ = [
    "DIVERGENCES",
    "KERNELS",
    "METHODS",
    "PATHS",
    "SCHEMES",
    "TARGETS",
    "AbstractDensity",
    "AbstractDivergence",
    "AbstractFixedSupportPath",
    "AbstractGlobalModel",
    "AbstractKernel",
    "AbstractMessages",
    "AbstractPath",
    "AbstractPreparedPath",
    "AbstractSampleable",
    "AbstractSchedule",
    "AbstractScheme",
    "AbstractStateSpaceModel",
    "AbstractTransition",
    "Affine",
    "AmortisedFit",
    "AmortisedRecord",
    "Annealing",
    "Append",
    "AutoregressiveMixture",
    "BijectionFlow",
    "Brownian",
    "CategoricalKernel",
    "Chain",
    "CheckpointError",
    "Context",
    "CorrelatedMixture",
    "DataError",
    "Density",
    "DensityError",
    "DiagonalNormal",
    "DistributionKernel",
    "DriftNetwork",
    "Empirical",
    "Evaluation",
    "ExactLevel",
    "Expectation",
    "Experts",
    "FDivergence",
    "Field",
    "Fit",
    "ForwardKL",
    "Funnel",
    "GaussianKernel",
    "GaussianMixture",
    "GivenSchedule",
    "GlobalStateSpace",
    "Hamiltonian",
    "Independent",
    "InstanceEvaluation",
    "Invariant",
    "Joint",
    "LangevinKernel",
    "LangevinTransition",
    "Latent",
    "LearnedSchedule",
    "LinearSchedule",
    "LogisticRegression",
    "ManyWell",
    "Messages",
    "Method",
    "MissingScoreError",
    "ModelError",
    "Multinomial",
    "NestedSampler",
    "NestedviWarning",
    "NextState",
    "NoHeuristic",
    "NoMessages",
    "NonFiniteGradientError",
    "Numpyro",
    "NumpyroModel",
    "Objective",
    "Particles",
    "PlanarDensity",
    "PlanarFlow",
    "Posterior",
    "ProductKernel",
    "ProgressBar",
    "RandomWalk",
    "Record",
    "Reporter",
    "Resampling",
    "Residual",
    "ResidualGaussian",
    "ReverseKL",
    "Rings",
    "Rotated",
    "Run",
    "ScaleMixture",
    "Scaled",
    "Scores",
    "Sequential",
    "Shared",
    "Stacked",
    "StackedDensities",
    "StateSpace",
    "Stratified",
    "Summary",
    "SymmetricDirichlet",
    "Systematic",
    "Target",
    "Tempered",
    "Transition",
    "TwoMoons",
    "UnknownNameError",
    "WithoutState",
    "alpha_divergence",
    "as_density",
    "as_sampleable",
    "blackjax_move",
    "build",
    "chi_squared",
    "compose",
    "distinct_ancestors",
    "ess",
    "evaluate",
    "evaluate_instances",
    "extend",
    "fit",
    "fit_amortised",
    "get_method",
    "get_target",
    "gmm40",
    "gradient",
    "hold",
    "jensen_shannon",
    "khat",
    "lineage",
    "log_Z_hat",
    "log_Z_hat_stderr",
    "normalise",
    "propose",
    "refit_base",
    "resample",
    "restart",
    "ring",
    "ring_modes",
    "rotated",
    "run",
    "sample",
    "stack",
    "tempered_smc",
    "trajectories",
    "upper_bound",
]
