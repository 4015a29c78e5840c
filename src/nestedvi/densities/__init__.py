"""Densities score one particle z, normalised or not: where a sample's journey begins. They refuse
to know about particles in bulk.
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
from nestedvi.densities.gaussian import CorrelatedMixture, DiagonalNormal, GaussianMixture
from nestedvi.densities.mixtures import Mixture, ScaleMixture
from nestedvi.densities.numpyro_model import NumpyroModel

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
    "Mixture",
    "Numpyro",
    "NumpyroModel",
    "Pullback",
    "ScaleMixture",
    "Scaled",
    "SymmetricDirichlet",
    "as_density",
    "as_sampleable",
]
