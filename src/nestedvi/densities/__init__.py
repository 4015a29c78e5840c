"""Densities score one particle: log γ(z), normalised or not. Some of them draw exact samples.

A density is written for one particle. Those that loops on the host draw from also score and draw
many rows at once. A density refuses to know weights, levels and samplers.
"""

from nestedvi.densities.affine import Affine, AffineMap, Pullback
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
from nestedvi.densities.dirichlet import SymmetricDirichlet
from nestedvi.densities.empirical import Empirical
from nestedvi.densities.folded import Folded
from nestedvi.densities.gaussian import DiagonalNormal, GaussianMixture
from nestedvi.densities.given import NormalGiven
from nestedvi.densities.low_rank import LowRankNormal, LowRankRoot
from nestedvi.densities.mixtures import CorrelatedMixture, Mixture, ScaleMixture, StudentMixture
from nestedvi.densities.numpyro_model import NumpyroModel
from nestedvi.densities.products import StudentProducts

__all__ = [
    "AbstractDensity",
    "AbstractSampleable",
    "Affine",
    "AffineMap",
    "AutoregressiveMixture",
    "CorrelatedMixture",
    "Density",
    "DiagonalNormal",
    "Empirical",
    "Folded",
    "GaussianMixture",
    "LowRankNormal",
    "LowRankRoot",
    "Mixture",
    "NormalGiven",
    "Numpyro",
    "NumpyroModel",
    "Pullback",
    "ScaleMixture",
    "Scaled",
    "StudentMixture",
    "StudentProducts",
    "SymmetricDirichlet",
    "as_density",
    "as_sampleable",
]
