"""Moves of particles that need no gradient: slice steps for nested sampling, random walks for a
prior with a likelihood. They refuse to know where particles come from.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Scalar
from nestedvi.densities.affine import whiten
from nestedvi.kernels.mcmc import metropolis
from nestedvi.kernels.slice import slice_noise_on_host, slice_steps
from nestedvi.smc.population import AbstractMove, LogDensity, Moved, Particles

__all__ = ["RandomWalkMove", "SliceMove"]

Rng = np.random.Generator
Vector = Float[Array, " dim"]
Square = Float[Array, "dim dim"]


class SliceMove(AbstractMove):
    """`steps` slice steps along random lines, in the metric of the particles' covariance.

    What is tuned is the width of the brackets; the acceptance is the share of tries that a step
    ended with.
    """

    steps: int = eqx.field(static=True, default=8)

    acceptance: ClassVar[float] = 0.5

    def root(self, z: Particles) -> Float[np.ndarray, "dim dim"]:
        return whiten(z)[1]

    def noise(self, rng: Rng, num: int, dim: int, dtype: Any) -> PyTree:
        return slice_noise_on_host(rng, num, self.steps, dim, dtype)

    def __call__(
        self, noise: PyTree, z: Vector, log_gamma: LogDensity, step_size: Scalar, root: Square
    ) -> Moved:
        moved = slice_steps(noise, z, log_gamma, step_size, root)
        return Moved(moved.z, self.steps / moved.tries.astype(z.dtype), jnp.ones((), z.dtype))

    def first_step_size(self, dim: int) -> float:
        return 4.0

    @property
    def gradients(self) -> int:
        return 0

    @property
    def values(self) -> int:
        """Of brackets that are tuned."""
        return 1 + round(self.steps / self.acceptance)


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
