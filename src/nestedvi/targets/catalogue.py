"""Targets by name: how to build each, its dimension, its log Z and where that number is from. It
builds a density only when asked, since some need data that are an extra.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.base import AbstractDensity
from nestedvi.errors import UnknownNameError
from nestedvi.targets.bayesian import Brownian, Seeds, breast_cancer
from nestedvi.targets.classic import Funnel, ManyWell, Rings, TwoMoons, gmm40, ring
from nestedvi.targets.cox import CoxProcess
from nestedvi.targets.evidences import EVIDENCES
from nestedvi.targets.regressions import (
    HierarchicalCredit,
    SparseCredit,
    german_credit,
    german_credit_raw,
    german_credit_wide,
    ionosphere,
    sonar,
)
from nestedvi.targets.volatility import StochasticVolatility

__all__ = ["MEASURED", "TARGETS", "Target", "get_target", "rotated"]


@dataclass(frozen=True)
class Target:
    """A named target: how to build it, its dimension, its log Z and where that number comes
    from. `log_Z` is None where two ways of computing it have not agreed yet.
    """

    build: Callable[[], AbstractDensity]
    dim: int
    log_Z: float | None
    source: str
    about: str

    @property
    def known_log_Z(self) -> float:
        """`log_Z`, for what cannot do without it."""
        if self.log_Z is None:
            raise ValueError(
                f"An error of log Z needs its value, which is {self.source} for this target"
                f" ({self.about}). `nestedvi targets` says which have one."
            )
        return self.log_Z


def _measured(name: str, build: Callable[[], AbstractDensity], dim: int, about: str) -> Target:
    """A target whose log Z is what `nestedvi bench evidences` measured, where it did."""
    evidence = EVIDENCES.get(name)
    if evidence is None:
        return Target(build, dim, None, "not measured", about)
    source = f"auto and bridge sampling, ± {evidence.stderr:.2g}"
    return Target(build, dim, evidence.log_Z, source, about)


_CREDIT = "logistic regression on the German credit data"
_MEASURED: tuple[tuple[str, Callable[[], AbstractDensity], int, str], ...] = (
    ("german-credit", german_credit, 25, f"{_CREDIT}, standardised"),
    ("german-credit-raw", german_credit_raw, 25, f"{_CREDIT}, as they are"),
    ("german-credit-wide", german_credit_wide, 25, f"{_CREDIT}, not centred, a wide prior"),
    ("german-credit-hierarchical", HierarchicalCredit, 26, f"{_CREDIT}, scale unknown"),
    ("german-credit-sparse", SparseCredit, 51, f"{_CREDIT}, a scale for each weight"),
    ("ionosphere", ionosphere, 35, "logistic regression on radar echoes, standardised"),
    ("sonar", sonar, 61, "logistic regression on sonar echoes, standardised"),
    ("cox", CoxProcess, 100, "log-Gaussian Cox process on 10 × 10 cells, whitened"),
    ("volatility", StochasticVolatility, 103, "stochastic volatility of the pound, 100 days"),
)
MEASURED = tuple(name for name, *_ in _MEASURED)

TARGETS: dict[str, Target] = {
    "ring": Target(
        ring, 2, float(np.log(8.0)), "closed form", "eight Gaussian modes on a circle (the paper's)"
    ),
    "funnel": Target(Funnel, 10, 0.0, "closed form", "Neal's funnel"),
    "many-well": Target(
        ManyWell, 32, 164.695675, "quadrature", "sixteen double wells, 65 536 modes"
    ),
    "two-moons": Target(TwoMoons, 2, 0.804214, "quadrature", "two facing crescents"),
    "rings": Target(Rings, 2, 4.078571, "quadrature", "four concentric circles"),
    "gmm40": Target(gmm40, 2, 0.0, "closed form", "forty Gaussians scattered over a wide square"),
    "brownian": Target(
        Brownian,
        32,
        1.187749,
        "Gaussian integral, then quadrature",
        "random walk of unknown scales, its middle unobserved",
    ),
    "breast-cancer": Target(
        breast_cancer,
        31,
        -67.4941,
        "importance sampling, ± 0.0005",
        "logistic regression on scikit-learn's data",
    ),
    "seeds": Target(
        Seeds, 26, -73.406179, "quadrature", "logistic regression with 21 random effects"
    ),
    **{name: _measured(name, build, dim, about) for name, build, dim, about in _MEASURED},
}


def get_target(name: str) -> Target:
    """The target of that name, or an error with the nearest name."""
    if name not in TARGETS:
        raise UnknownNameError("target", name, TARGETS)
    return TARGETS[name]


def rotated(target: Target, seed: int) -> Target:
    """The target in coordinates turned at random (uniformly over all rotations), the same for the
    same seed.
    """
    rng = np.random.default_rng(seed)
    q, r = np.linalg.qr(rng.normal(size=(target.dim, target.dim)))
    # The signs make the orthogonal factor uniform; turning one column makes it a rotation.
    q *= np.sign(np.diag(r))
    q[:, 0] *= np.sign(np.linalg.det(q))

    def build() -> Pullback:
        turn = jnp.asarray(q.T, dtype=jnp.result_type(float))
        return Pullback(target.build(), AffineMap(jnp.zeros(target.dim), turn))

    return replace(target, build=build, about=f"{target.about}, rotated (seed {seed})")
