"""log ∫ q(z) L(z) dz for a prior q that can be sampled and a likelihood L: tempering with random
walks, for reference values in a few dimensions.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Key, Scalar
from nestedvi.densities.affine import whiten
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.kernels.mcmc import metropolis
from nestedvi.smc.population import AbstractMove, LogDensity, Moved, Particles
from nestedvi.smc.tempering import Plan, Tempering, tempering

__all__ = ["RandomWalkMove", "tempered_smc"]

Vector = Float[Array, " dim"]
Square = Float[Array, "dim dim"]


class _Posterior(AbstractDensity):
    """q(z) L(z)."""

    prior: AbstractSampleable
    log_likelihood: Callable[[Vector], Scalar]

    def log_gamma(self, z: Vector) -> Scalar:
        return self.prior.log_gamma(z) - self.prior.log_Z + self.log_likelihood(z)


class RandomWalkMove(AbstractMove):
    """`steps` random-walk Metropolis steps in the metric of the particles' covariance.

    Sizes vary around the tuned one: heavy tails of the proposal help where the covariance fits
    badly.
    """

    steps: int = eqx.field(static=True, default=5)

    acceptance: ClassVar[float] = 0.25

    def root(self, z: Particles) -> Float[np.ndarray, "dim dim"]:
        return whiten(z)[1]

    def noise(self, rng: np.random.Generator, num: int, dim: int, dtype: Any) -> PyTree:
        shape = (num, self.steps)
        return (
            rng.standard_normal((*shape, dim)).astype(dtype),
            np.exp(0.7 * rng.standard_normal(shape)).astype(dtype),
            np.log1p(-rng.uniform(size=shape)).astype(dtype),
        )

    def __call__(
        self, noise: PyTree, z: Vector, log_gamma: LogDensity, step_size: Scalar, root: Square
    ) -> Moved:
        def step(state, noise):
            z, log_z = state
            eps, factor, log_uniform = noise
            proposal = z + step_size * factor * (root @ eps)
            # Outside of the support a density may be NaN: no mass.
            log_proposal = jnp.nan_to_num(log_gamma(proposal), nan=-jnp.inf, neginf=-jnp.inf)
            z, log_z, accept = metropolis(log_uniform, z, log_z, proposal, log_proposal)
            return (z, log_z), accept

        (z, _), accepted = jax.lax.scan(step, (z, log_gamma(z)), noise)
        return Moved(z, jnp.mean(accepted.astype(z.dtype)), jnp.ones((), z.dtype))

    def first_step_size(self, dim: int) -> float:
        return 2.38 / dim**0.5

    @property
    def gradients(self) -> int:
        return 0

    @property
    def values(self) -> int:
        return self.steps + 1


def tempered_smc(
    key: Key,
    prior: AbstractSampleable,
    log_likelihood: Callable[[Vector], Scalar],
    *,
    num_particles: int = 1000,
    num_moves: int = 10,
    ess_share: float = 0.5,
) -> Tempering:
    """Adaptive tempered SMC from the prior with `num_moves` random-walk steps at each temperature.
    A likelihood that is an `eqx.Module` with its data as arrays is compiled once for all data of a
    shape.

    Where prior and likelihood are symmetric under a change of labels, give a prior that is folded
    onto one ordering of the labels (zero elsewhere): proposals that leave it are refused, and the
    particles' covariance is that of one copy of the posterior.
    """
    move = RandomWalkMove(steps=5)
    plan = Plan(ess_share, moves=-(-num_moves // move.steps))
    target = _Posterior(prior, log_likelihood)
    return tempering(key, prior, target, plan, num_particles=num_particles, move=move)
