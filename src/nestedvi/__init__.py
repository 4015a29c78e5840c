"""Nested variational inference: learn the parts of nested importance samplers, level by level."""

from nestedvi import densities, devices, divergences, errors, kernels, particles, paths, targets
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, Density
from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.densities.numpyro_model import NumpyroModel
from nestedvi.divergences.f import AbstractDivergence, FDivergence, ForwardKL, ReverseKL
from nestedvi.errors import (
    NestedviWarning,
)
from nestedvi.evaluation.evaluate import Evaluation, evaluate
from nestedvi.evaluation.instances import evaluate_instances
from nestedvi.inference.posterior import Posterior
from nestedvi.inference.sample import sample
from nestedvi.kernels.base import AbstractKernel, AbstractTransition, Transition, stack
from nestedvi.kernels.discrete import DistributionKernel
from nestedvi.kernels.gaussian import ResidualGaussian
from nestedvi.kernels.hmc import Hamiltonian
from nestedvi.kernels.mcmc import RandomWalk
from nestedvi.kernels.planar import PlanarFlow
from nestedvi.kernels.product import ProductKernel
from nestedvi.methods import METHODS, Method, build, get_method
from nestedvi.particles.resampling import Resampling
from nestedvi.particles.weights import ess, khat, log_Z_hat
from nestedvi.paths.annealing import Annealing
from nestedvi.paths.base import AbstractPath
from nestedvi.paths.schedules import GivenSchedule, LearnedSchedule, LinearSchedule
from nestedvi.paths.state_space import AbstractStateSpaceModel, StateSpace
from nestedvi.sampler.compose import compose, extend, propose, resample
from nestedvi.sampler.level import hold
from nestedvi.sampler.nested import NestedSampler, Shared, Stacked, restart
from nestedvi.sampler.run import Run, run
from nestedvi.train.amortised import fit_amortised
from nestedvi.train.fit import Fit, fit
from nestedvi.train.objective import Objective

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "AbstractDensity",
    "AbstractDivergence",
    "AbstractKernel",
    "AbstractPath",
    "AbstractSampleable",
    "AbstractStateSpaceModel",
    "AbstractTransition",
    "Annealing",
    "Density",
    "DiagonalNormal",
    "DistributionKernel",
    "Evaluation",
    "FDivergence",
    "Fit",
    "ForwardKL",
    "GivenSchedule",
    "Hamiltonian",
    "LearnedSchedule",
    "LinearSchedule",
    "Method",
    "NestedSampler",
    "NestedviWarning",
    "NumpyroModel",
    "Objective",
    "PlanarFlow",
    "Posterior",
    "ProductKernel",
    "RandomWalk",
    "Resampling",
    "ResidualGaussian",
    "ReverseKL",
    "Run",
    "Shared",
    "Stacked",
    "StateSpace",
    "Transition",
    "build",
    "compose",
    "densities",
    "devices",
    "divergences",
    "errors",
    "ess",
    "evaluate",
    "evaluate_instances",
    "extend",
    "fit",
    "fit_amortised",
    "get_method",
    "hold",
    "kernels",
    "khat",
    "log_Z_hat",
    "particles",
    "paths",
    "propose",
    "resample",
    "restart",
    "run",
    "sample",
    "stack",
    "targets",
]
