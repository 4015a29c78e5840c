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

__all__ = ["TARGETS", "Target", "get_target", "rotated"]


@dataclass(frozen=True)
class Target:
    """A named target: how to build it, its dimension, its log Z and where that number comes
    from.
    """

    build: Callable[[], AbstractDensity]
    dim: int
    log_Z: float
    source: str
    about: str


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
