"""Heuristic factors ψ of a state-space path: learned stand-ins for the likelihood of what is still
to come.

ψ_k(z_k, η) stands for p(x_{k+1:K} | z_k, η). A heuristic gives it in two steps, as the backward
pass of a hidden Markov model does: `messages` sees all observations and η once and leaves one
backward message for each step, `log_psi` reads the message of step k at a state z_k. So a sampler
of S particles costs O(S K), where a function of (k, z_k, η, x) that is evaluated anew at every
level would cost O(S K²). A heuristic refuses to know levels and particles in bulk: the path keeps
its messages.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi._types import Particle, Scalar

__all__ = ["AbstractHeuristic", "Messages", "NoHeuristic"]


class Messages(NamedTuple):
    """Backward messages for one η: `later` holds what `log_psi` needs for ψ_1 … ψ_K (leading axis
    K), `first` is log ψ_0(η), which only models with global variables use.
    """

    later: PyTree
    first: Any = 0.0


class AbstractHeuristic(eqx.Module):
    """A heuristic ψ; its arrays are the parameters θ of the path.

    ```python
    class Bump(nvi.paths.AbstractHeuristic):
        centre: jax.Array  # shape (K,)

        def messages(self, eta, observations):
            return nvi.paths.Messages(self.centre)

        def log_psi(self, message, z):
            return -0.5 * (z - message) ** 2
    ```
    """

    @abc.abstractmethod
    def messages(self, eta: PyTree, observations: PyTree) -> Messages:
        """The messages for all steps, from η (None where there is none) and x_{1:K}."""

    @abc.abstractmethod
    def log_psi(self, message: PyTree, z: Particle) -> Scalar:
        """log ψ_k of the particle z, from the message of step k; never asked for k = K, where ψ is
        one.
        """


class NoHeuristic(AbstractHeuristic):
    """ψ = 1: the targets are the filtering densities, and the first one is the prior of η where
    there is one.
    """

    def messages(self, eta: PyTree, observations: PyTree) -> Messages:
        return Messages(None)

    def log_psi(self, message: PyTree, z: Particle) -> Scalar:
        return jnp.zeros(())
