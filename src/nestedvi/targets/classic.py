"""Classic targets. They are densities like any user's; nothing here knows of samplers."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, Scaled, check_shape
from nestedvi.densities.gaussian import GaussianMixture
from nestedvi.targets.data import GMM40_MEANS

__all__ = [
    "Funnel",
    "ManyWell",
    "Rings",
    "TwoMoons",
    "gmm40",
    "ring",
    "ring_modes",
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
