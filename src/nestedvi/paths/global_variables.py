"""State-space models with global variables: γ_0(η) = p(η) ψ_0(η), γ_k(η, z_{1:k}) = p(η, x_{1:k},
z_{1:k}) ψ_k(z_k, η).

η is drawn at the first level and carried along; ψ_k stands for p(x_{k+1:K} | z_k, η), and ψ_K = 1,
so that Z_K = p(x_{1:K}). A heuristic looks at η and all of x once for each first-level particle and
leaves a message for every level; later levels only read them. Training therefore costs O(S K) where
evaluating ψ_k anew at every level would cost O(S K²).
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi._types import Key, Particle, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.paths.base import AbstractPreparedPath, trainable_fields

__all__ = [
    "AbstractGlobalModel",
    "AbstractMessages",
    "GlobalStateSpace",
    "Latent",
    "Messages",
    "NoMessages",
    "WithoutState",
]


class Latent(NamedTuple):
    """A particle: the global variables η, the latest state z_k, and which first-level particle η
    came from.
    """

    eta: PyTree
    state: PyTree
    origin: Any


class AbstractGlobalModel(eqx.Module):
    """p(η) p(z_1 | η) Π p(z_k | z_{k-1}, η) p(x_k | z_k, η), for one trajectory."""

    @abc.abstractmethod
    def log_prior(self, eta: PyTree) -> Scalar:
        """log p(η)."""

    @abc.abstractmethod
    def log_initial(self, z: PyTree, eta: PyTree) -> Scalar:
        """log p(z_1 | η)."""

    @abc.abstractmethod
    def log_transition(self, z: PyTree, z_prev: PyTree, eta: PyTree) -> Scalar:
        """log p(z_k | z_{k-1}, η)."""

    @abc.abstractmethod
    def log_observation(self, x: PyTree, z: PyTree, eta: PyTree) -> Scalar:
        """log p(x_k | z_k, η)."""


class Messages(NamedTuple):
    """What a heuristic says of one η: log ψ_0(η), and for each of ψ_1 … ψ_K whatever `read` wants
    (leading axis K).
    """

    first: Scalar
    later: PyTree


class AbstractMessages(eqx.Module):
    """A heuristic ψ; its arrays are the parameters θ."""

    @abc.abstractmethod
    def messages(self, eta: PyTree, observations: PyTree) -> Messages:
        """Looks at η and x_{1:K} once."""

    @abc.abstractmethod
    def read(self, message: PyTree, state: PyTree) -> Scalar:
        """log ψ_k(z_k, η) from the message for level k."""


class NoMessages(AbstractMessages):
    """ψ = 1: the targets are the filtering densities, and the first one is the prior of η."""

    def messages(self, eta: PyTree, observations: PyTree) -> Messages:
        return Messages(jnp.zeros(()), jnp.zeros(jax.tree.leaves(observations)[0].shape[0]))

    def read(self, message: PyTree, state: PyTree) -> Scalar:
        return jnp.zeros(())


class _Theta(NamedTuple):
    """θ_k: the step k = 0 … K, x_k (x_1 at k = 0, where it is not used), and the messages of every
    first-level particle.
    """

    k: Any
    x: PyTree
    first: Any
    message: PyTree


class GlobalStateSpace(AbstractPreparedPath):
    """K+1 densities for K observations: η first, then one state a level. Particles are `Latent`.

    Proposals: `WithoutState(q(η), state)` at the first level, then `NextState(kernel)` without a
    reverse kernel.
    """

    model: AbstractGlobalModel
    observations: PyTree
    heuristic: AbstractMessages = NoMessages()
    eta: PyTree = None

    @property
    def num_steps(self) -> int:
        """K, the number of observations."""
        return jax.tree.leaves(self.observations)[0].shape[0]

    @property
    def num_levels(self) -> int:
        return self.num_steps + 1

    def prepare(self, z: Latent) -> tuple["GlobalStateSpace", Latent]:
        rows = jnp.arange(z.origin.shape[0], dtype=z.origin.dtype)
        # Not tree_at: the field is empty before.
        return GlobalStateSpace(self.model, self.observations, self.heuristic, z.eta), z._replace(
            origin=rows
        )

    def thetas(self) -> _Theta:
        steps = jnp.arange(self.num_levels)
        x = jax.tree.map(lambda x: jnp.concatenate([x[:1], x]), self.observations)
        if self.eta is None:
            return _Theta(steps, x, None, None)
        table = jax.vmap(lambda eta: self.heuristic.messages(eta, self.observations))(self.eta)
        first = (
            jnp.zeros((self.num_levels, *table.first.shape), table.first.dtype)
            .at[0]
            .set(table.first)
        )

        def pad(m):
            return jnp.concatenate([jnp.zeros_like(m[:, :1]), m], axis=1).swapaxes(0, 1)

        return _Theta(steps, x, first, jax.tree.map(pad, table.later))

    def stats(self, z: Latent) -> Latent:
        return z

    def log_gamma(self, theta: _Theta, stats: Latent, stats_prev: Latent | None) -> Scalar:
        eta, state = stats.eta, stats.state
        if stats_prev is None:
            return self.model.log_prior(eta) + self.heuristic.messages(eta, self.observations).first
        begin = self.model.log_initial(state, eta)
        go_on = self.model.log_transition(state, stats_prev.state, eta)
        log_state = jnp.where(theta.k == 1, begin, go_on)
        return (
            log_state
            + self.model.log_observation(theta.x, state, eta)
            + self._log_psi(theta, stats)
        )

    def log_gamma_prev(self, theta_prev: _Theta, stats_prev: Latent) -> Scalar:
        return jnp.where(
            theta_prev.k == 0,
            theta_prev.first[stats_prev.origin],
            self._log_psi(theta_prev, stats_prev),
        )

    def log_psi(self, k: Any, eta: PyTree, state: PyTree) -> Scalar:
        """log ψ_k(z_k, η) for any η, looked at anew; k = 0 … K."""
        first, later = self.heuristic.messages(eta, self.observations)
        here = jax.tree.map(
            lambda m: jax.lax.dynamic_index_in_dim(m, jnp.maximum(k - 1, 0), keepdims=False), later
        )
        log_later = jnp.where(k == self.num_steps, 0.0, self.heuristic.read(here, state))
        return jnp.where(k == 0, first, log_later)

    def _log_psi(self, theta: _Theta, stats: Latent) -> Scalar:
        message = jax.tree.map(lambda m: m[stats.origin], theta.message)
        return jnp.where(theta.k == self.num_steps, 0.0, self.heuristic.read(message, stats.state))

    def trainable(self) -> PyTree:
        return trainable_fields(self, "heuristic")

    def learned(self, theta: _Theta) -> PyTree:
        def on(tree, flag):
            return jax.tree.map(lambda _: flag, tree)

        return _Theta(
            on(theta.k, False), on(theta.x, False), on(theta.first, True), on(theta.message, True)
        )


class WithoutState(AbstractSampleable):
    """q(η) as the proposal of the first level: no state yet, `state` only gives its shape and
    type.
    """

    eta: AbstractSampleable
    state: PyTree

    def log_gamma(self, z: Particle) -> Scalar:
        return self.eta.log_gamma(z.eta)

    @property
    def log_Z(self) -> Scalar:
        return self.eta.log_Z

    @property
    def reparameterised(self) -> bool:
        return self.eta.reparameterised

    def sample(self, key: Key) -> Latent:
        return Latent(self.eta.sample(key), self.state, jnp.zeros((), jnp.int32))
