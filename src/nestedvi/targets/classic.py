"""Classic targets with known normalisers, by name. They are densities like any user's; nothing here
knows of samplers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, Scaled, check_shape
from nestedvi.densities.gaussian import GaussianMixture
from nestedvi.errors import UnknownNameError
from nestedvi.targets.bayesian import Brownian, breast_cancer
from nestedvi.targets.data import GMM40_MEANS

__all__ = [
    "TARGETS",
    "Funnel",
    "ManyWell",
    "Rings",
    "Rotated",
    "Target",
    "TwoMoons",
    "get_target",
    "gmm40",
    "ring",
    "ring_modes",
    "rotated",
]

RING_MODES, RING_RADIUS, RING_VARIANCE = 8, 10.0, 0.5


def ring_modes() -> Float[Array, "8 2"]:
    """μ_m = 10 (sin 2πm/8, cos 2πm/8), m = 1..8."""
    angle = 2 * np.pi * np.arange(1, RING_MODES + 1) / RING_MODES
    return jnp.asarray(
        RING_RADIUS * np.stack([np.sin(angle), np.cos(angle)], axis=1), dtype=jnp.result_type(float)
    )


def ring() -> Scaled:
    """The paper's target: γ(z) = Σ_m N(z; μ_m, 0.5 I), eight modes on a circle; log Z = log 8."""
    return Scaled(GaussianMixture(ring_modes(), RING_VARIANCE), np.log(RING_MODES))


def gmm40() -> GaussianMixture:
    """Forty equally weighted Gaussians of unit covariance, their means scattered over [−40,
    40]².
    """
    return GaussianMixture(GMM40_MEANS, 1.0)


class Funnel(AbstractSampleable):
    """Neal's funnel: x_0 ~ N(0, 3²), x_i ~ N(0, exp(x_0)) for the other nine coordinates."""

    def log_gamma(self, z: Float[Array, "10"]) -> Scalar:
        check_shape(z, (10,), "Funnel")
        neck, rest = z[0], z[1:]
        log_neck = -0.5 * (neck / 3.0) ** 2 - np.log(3.0) - 0.5 * np.log(2 * np.pi)
        log_rest = -0.5 * rest**2 * jnp.exp(-neck) - 0.5 * neck - 0.5 * np.log(2 * np.pi)
        return log_neck + jnp.sum(log_rest)

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros(())

    @property
    def reparameterised(self) -> bool:
        return True

    def sample(self, key: Key) -> Float[Array, "10"]:
        noise = jax.random.normal(key, (10,))
        neck = 3.0 * noise[0]
        return jnp.concatenate([neck[None], jnp.exp(0.5 * neck) * noise[1:]])


class ManyWell(AbstractDensity):
    """Sixteen double wells in 32 dimensions: Σ −x⁴ + 6x² + x/2 − y²/2 over (x, y) pairs."""

    def log_gamma(self, z: Float[Array, "32"]) -> Scalar:
        check_shape(z, (32,), "ManyWell")
        x, y = z[0::2], z[1::2]
        return jnp.sum(-(x**4) + 6 * x**2 + 0.5 * x - 0.5 * y**2)


class TwoMoons(AbstractDensity):
    """Two facing crescents: −((|z| − 2)/0.2)²/2 + log Σ_± exp(−((z_1 ∓ 2)/0.3)²/2)."""

    def log_gamma(self, z: Float[Array, "2"]) -> Scalar:
        check_shape(z, (2,), "TwoMoons")
        radius = jnp.sqrt(jnp.sum(z**2) + 1e-12)
        left, right = -0.5 * ((z[0] + 2) / 0.3) ** 2, -0.5 * ((z[0] - 2) / 0.3) ** 2
        return -0.5 * ((radius - 2) / 0.2) ** 2 + jnp.logaddexp(left, right)


class Rings(AbstractDensity):
    """Four concentric circles of radius 1.5, 3, 4.5, 6 and width 0.25."""

    def log_gamma(self, z: Float[Array, "2"]) -> Scalar:
        check_shape(z, (2,), "Rings")
        radius = jnp.sqrt(jnp.sum(z**2) + 1e-12)
        return jax.nn.logsumexp(-0.5 * ((radius - 1.5 * jnp.arange(1, 5)) / 0.25) ** 2)


class Rotated(AbstractDensity):
    """γ(Rᵀ z) for a rotation R: the same log Z, in coordinates that no sampler was built for."""

    base: AbstractDensity
    rotation: Float[Array, "dim dim"]

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        check_shape(z, self.rotation.shape[:1], "Rotated")
        return self.base.log_gamma(z @ self.rotation)


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

    def build() -> Rotated:
        return Rotated(target.build(), jnp.asarray(q, dtype=jnp.result_type(float)))

    return replace(target, build=build, about=f"{target.about}, rotated (seed {seed})")
