"""Moves of adaptive tempered SMC: they leave a density invariant, and their size is tuned as they
run.

A move takes its metric from the particles and its size from how often earlier moves were accepted.
It refuses to know temperatures and weights.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Scalar
from nestedvi.fitting.directions import whiten
from nestedvi.fitting.mixtures import bulk_root
from nestedvi.kernels.hmc import hamiltonian_step, noise_on_host
from nestedvi.kernels.mcmc import metropolis

__all__ = ["AbstractMove", "HamiltonianMove", "Moved", "RandomWalkMove"]

Vector = Float[Array, " dim"]
Square = Float[Array, "dim dim"]
LogDensity = Callable[[Vector], Scalar]
Particles = Float[np.ndarray, "particles dim"]


class Moved(NamedTuple):
    """Where a particle is, how likely its proposal was to be accepted, and 1 if that proposal was
    of the tuned size (0 if it does not count for tuning).
    """

    z: Vector
    acceptance: Scalar
    tuned: Scalar


class AbstractMove(eqx.Module):
    """A move of one vector that leaves a density invariant for any step size and metric."""

    acceptance: eqx.AbstractClassVar[float]
    """The mean acceptance that the step size is tuned to."""

    @abc.abstractmethod
    def root(self, z: Particles) -> Float[np.ndarray, "dim dim"]:
        """A root of the metric, from the particles; on the host."""

    @abc.abstractmethod
    def noise(self, rng: np.random.Generator, num: int, dim: int, dtype: Any) -> PyTree:
        """All that is random in a move of each of `num` particles; on the host, so that no
        generator of random numbers is compiled.
        """

    @abc.abstractmethod
    def __call__(
        self, noise: PyTree, z: Vector, log_gamma: LogDensity, step_size: Scalar, root: Square
    ) -> Moved:
        """One move of one particle."""

    @abc.abstractmethod
    def first_step_size(self, dim: int) -> float:
        """Where tuning starts."""

    @property
    @abc.abstractmethod
    def gradients(self) -> int:
        """Gradients of the density that a move takes."""

    @property
    @abc.abstractmethod
    def values(self) -> int:
        """Values of the density that a move takes besides."""


class HamiltonianMove(AbstractMove):
    """A Hamiltonian trajectory of `leaps` leapfrog steps in the metric of the particles' bulk."""

    leaps: int = eqx.field(static=True, default=10)

    acceptance: ClassVar[float] = 0.8

    def root(self, z: Particles) -> Float[np.ndarray, "dim dim"]:
        return bulk_root(z)

    def noise(self, rng: np.random.Generator, num: int, dim: int, dtype: Any) -> PyTree:
        return noise_on_host(rng, num, dim, dtype)

    def __call__(
        self, noise: PyTree, z: Vector, log_gamma: LogDensity, step_size: Scalar, root: Square
    ) -> Moved:
        moved = hamiltonian_step(noise, z, log_gamma, step_size, root, self.leaps)
        return Moved(moved.z, moved.acceptance, moved.tuned)

    def first_step_size(self, dim: int) -> float:
        return 0.3

    @property
    def gradients(self) -> int:
        return self.leaps + 1

    @property
    def values(self) -> int:
        return 0


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
