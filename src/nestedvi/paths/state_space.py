"""Growing support: γ_k(z_{1:k}) = p(x_{1:k}, z_{1:k}) ψ_k(z_k) for a state-space model with
heuristic factors ψ.

The particle at level k is the latest state z_k (with any global variables carried along in its
pytree); earlier states are recovered from the recorded ancestors. γ_k and γ_{k-1} share
p(x_{1:k-1}, z_{1:k-1}), which cancels in v_k and carries no gradient of ψ: the path leaves it out.
It therefore refuses to learn parameters of p itself.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi._types import Particle, Scalar
from nestedvi.paths.base import AbstractPath, trainable_fields

__all__ = ["AbstractStateSpaceModel", "NoHeuristic", "StateSpace"]


class AbstractStateSpaceModel(eqx.Module):
    """p(z_1) Π p(z_k | z_{k-1}) p(x_k | z_k), for one trajectory."""

    @abc.abstractmethod
    def log_initial(self, z: Particle) -> Scalar:
        """log p(z_1)."""

    @abc.abstractmethod
    def log_transition(self, z: Particle, z_prev: Particle) -> Scalar:
        """log p(z_k | z_{k-1})."""

    @abc.abstractmethod
    def log_observation(self, x: PyTree, z: Particle) -> Scalar:
        """log p(x_k | z_k)."""


class NoHeuristic(eqx.Module):
    """ψ = 1: the targets are the filtering densities."""

    def __call__(self, k: Any, z: Particle) -> Scalar:
        return jnp.zeros(())


class StateSpace(AbstractPath):
    """The densities γ_k(z_{1:k}) ∝ p(x_{1:k}, z_{1:k}) ψ_k(z_k); ψ_K = 1 always, so that Z_K =
    p(x_{1:K}).

    `heuristic(k, z)` returns log ψ_k(z) for k = 1 … K-1; its arrays are the parameters θ.
    """

    model: AbstractStateSpaceModel
    observations: PyTree
    heuristic: Any = NoHeuristic()

    @property
    def num_levels(self) -> int:
        return jax.tree.leaves(self.observations)[0].shape[0]

    def thetas(self) -> tuple[Any, Any]:
        return jnp.arange(1, self.num_levels + 1), self.observations

    def stats(self, z: Particle) -> Particle:
        return z

    def _log_heuristic(self, k: Any, z: Particle) -> Scalar:
        return jnp.where(k == self.num_levels, 0.0, self.heuristic(k, z))

    def log_gamma(self, theta: tuple[Any, Any], stats: Particle, stats_prev: Particle) -> Scalar:
        k, x = theta
        first = stats_prev is None
        log_state = (
            self.model.log_initial(stats) if first else self.model.log_transition(stats, stats_prev)
        )
        return log_state + self.model.log_observation(x, stats) + self._log_heuristic(k, stats)

    def log_gamma_prev(self, theta_prev: tuple[Any, Any], stats_prev: Particle) -> Scalar:
        return self._log_heuristic(theta_prev[0], stats_prev)

    def trainable(self) -> PyTree:
        return trainable_fields(self, "heuristic")

    def learned(self, theta: tuple[Any, Any]) -> PyTree:
        return jax.tree.map(lambda _: False, theta)
