"""First station: densities score one particle z, normalised or not."""

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
from nestedvi.densities.compound import Affine, Mixture, ScaleMixture
from nestedvi.densities.dirichlet import SymmetricDirichlet
from nestedvi.densities.empirical import Empirical
from nestedvi.densities.gaussian import CorrelatedMixture, DiagonalNormal, GaussianMixture
from nestedvi.densities.numpyro_model import NumpyroModel

__all__ = [
    "AbstractDensity",
    "AbstractSampleable",
    "Affine",
    "AutoregressiveMixture",
    "CorrelatedMixture",
    "Density",
    "DiagonalNormal",
    "Empirical",
    "GaussianMixture",
    "Mixture",
    "Numpyro",
    "NumpyroModel",
    "ScaleMixture",
    "Scaled",
    "SymmetricDirichlet",
    "as_density",
    "as_sampleable",
]
