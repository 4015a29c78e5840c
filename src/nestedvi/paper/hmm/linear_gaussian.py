"""A linear-Gaussian state-space model, whose evidence the Kalman filter gives exactly, with
proposals and heuristics to learn. It refuses to train them: that is `series`'.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.kernels.base import Transition
from nestedvi.kernels.gaussian import GaussianKernel, normal_log_prob
from nestedvi.particles.resampling import Resampling
from nestedvi.paths.heuristics import AbstractHeuristic, Messages, NoHeuristic
from nestedvi.paths.state_space import AbstractStateSpaceModel, StateSpace
from nestedvi.sampler.nested import NestedSampler, Stacked

__all__ = ["GaussianHeuristic", "LinearGaussian", "particle_filter"]


class LinearGaussian(AbstractStateSpaceModel):
    """z_1 ~ N(0, spread²), z_k ~ N(decay · z_{k-1}, step²), x_k ~ N(z_k, noise²), all on the line
    (particles of shape (1,)).
    """

    decay: float = eqx.field(static=True, default=0.95)
    step: float = eqx.field(static=True, default=0.5)
    noise: float = eqx.field(static=True, default=0.3)
    spread: float = eqx.field(static=True, default=1.0)

    def log_initial(self, z: Float[Array, " 1"]) -> Scalar:
        return normal_log_prob(z, jnp.zeros(1), jnp.full(1, self.spread))

    def log_transition(self, z: Float[Array, " 1"], z_prev: Float[Array, " 1"]) -> Scalar:
        return normal_log_prob(z, self.decay * z_prev, jnp.full(1, self.step))

    def log_observation(self, x: Scalar, z: Float[Array, " 1"]) -> Scalar:
        return normal_log_prob(x[None], z, jnp.full(1, self.noise))

    def simulate(self, key: Key, num_steps: int) -> Float[Array, " steps"]:
        """x_{1:K} from the model."""
        key_first, key_steps, key_x = jax.random.split(key, 3)

        def transition(z, noise):
            return self.decay * z + self.step * noise, z

        first = self.spread * jax.random.normal(key_first)
        _, z = jax.lax.scan(transition, first, jax.random.normal(key_steps, (num_steps,)))
        return z + self.noise * jax.random.normal(key_x, (num_steps,))

    def log_evidence(self, xs: Float[Array, " steps"]) -> Scalar:
        """log p(x_{1:K}) by the Kalman filter."""

        def update(carry, x):
            mean, variance = carry
            spread = variance + self.noise**2
            log_x = -0.5 * (jnp.log(2 * np.pi * spread) + (x - mean) ** 2 / spread)
            gain = variance / spread
            mean, variance = mean + gain * (x - mean), (1 - gain) * variance
            return (self.decay * mean, self.decay**2 * variance + self.step**2), log_x

        start = jnp.zeros((), xs.dtype), jnp.full((), self.spread**2, xs.dtype)
        return jnp.sum(jax.lax.scan(update, start, xs)[1])


class GaussianHeuristic(AbstractHeuristic):
    """log ψ_k(z) = −½ e^{l_k} |z − m_k|², a bump at every step; p(x_{k+1:K} | z_k) of a
    linear-Gaussian model is one.
    """

    centre: Float[Array, "steps 1"]
    log_precision: Float[Array, " steps"]

    def messages(self, eta: None, observations: Float[Array, " steps"]) -> Messages:
        return Messages((self.centre, self.log_precision))

    def log_psi(self, message: tuple[Array, Array], z: Float[Array, " 1"]) -> Scalar:
        centre, log_precision = message
        return -0.5 * jnp.exp(log_precision) * jnp.sum((z - centre) ** 2)


def particle_filter(
    model: LinearGaussian,
    xs: Float[Array, " steps"],
    *,
    learned: bool = False,
    heuristic: bool = False,
) -> NestedSampler:
    """A bootstrap filter, one with proposals to learn (a Gaussian a step), or one that also learns
    a heuristic.

    What is to be learned starts as the bootstrap filter and as ψ ≈ 1.
    """
    num = xs.shape[0] - 1
    psi = GaussianHeuristic(xs[:, None], jnp.full(xs.shape, -3.0)) if heuristic else NoHeuristic()

    def flat(value):
        return jnp.full((num, 1), value, xs.dtype)

    kernels = GaussianKernel(
        flat(model.decay), flat(0.0), flat(np.log(model.step)), score_only=learned
    )
    initial = DiagonalNormal(jnp.zeros(1), model.spread)
    return NestedSampler(
        initial,
        StateSpace(model, xs, psi),
        Stacked(Transition(kernels)),
        Resampling("systematic", "always"),
    )
