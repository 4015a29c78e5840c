"""Growing support: the targets of a state-space model, with heuristic factors ψ and optional global
variables η.

    γ_k(z_{1:k}) = p(x_{1:k}, z_{1:k}) ψ_k(z_k)                              k = 1 … K
    γ_0(η) = p(η) ψ_0(η),  γ_k(η, z_{1:k}) = p(η, x_{1:k}, z_{1:k}) ψ_k(z_k, η)     k = 0 … K

ψ_K = 1, so that Z_K = p(x_{1:K}) in both. One class serves both, because a level is the same: the
particle is all that the next step depends on, and models, heuristics and kernels see the whole of
it. Without η it is the bare state z_k; with η (a `prior` is given) it is a `Latent`, the first
level draws η alone, and every later level carries it along. Earlier states are recovered from the
recorded ancestors.

Messages of the heuristic are part of θ_k. Without η there is one for each step. With η they differ
from particle to particle, so the path is prepared after the first level: it keeps the S values of η
and their messages as a table, and every particle remembers its row.

γ_k and γ_{k-1} share p(η, x_{1:k-1}, z_{1:k-1}), which cancels in v_k and carries no gradient of ψ:
the path leaves it out. It therefore refuses to learn parameters of p itself.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi._types import Key, Particle, Scalar
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, as_density, as_sampleable
from nestedvi.paths.base import AbstractPreparedPath, trainable_fields
from nestedvi.paths.heuristics import AbstractHeuristic, NoHeuristic

__all__ = ["AbstractStateSpaceModel", "Latent", "StateSpace", "Step", "WithoutState"]


class AbstractStateSpaceModel(eqx.Module):
    """p(z_1) Π p(z_k | z_{k-1}) p(x_k | z_k), for one trajectory.

    z is the particle: the state itself, or in a model with global variables a `Latent`, whose
    `z.state` and `z.eta` all three densities may use.

    Example:
        ```python
        class Epidemic(nvi.AbstractStateSpaceModel):  # counts of cases whose log rate wanders
            def log_initial(self, z):
                return dist.Normal(2.0, 1.0).log_prob(z)

            def log_transition(self, z, z_prev):
                return dist.Normal(z_prev, 0.2).log_prob(z)

            def log_observation(self, x, z):
                return dist.Poisson(jnp.exp(z)).log_prob(x)

        Epidemic().log_observation(7, 2.1)
        ```
    """

    @abc.abstractmethod
    def log_initial(self, z: Particle) -> Scalar:
        """log p(z_1), given η where there is one."""

    @abc.abstractmethod
    def log_transition(self, z: Particle, z_prev: Particle) -> Scalar:
        """log p(z_k | z_{k-1}), given η where there is one."""

    @abc.abstractmethod
    def log_observation(self, x: PyTree, z: Particle) -> Scalar:
        """log p(x_k | z_k), given η where there is one."""


class Latent(NamedTuple):
    """A particle with global variables: η, the latest state z_k, and which first-level particle η
    came from (its row in the path's table).
    """

    eta: PyTree
    state: PyTree
    origin: Any


class Step(NamedTuple):
    """θ_k, which proposals find in `context.theta`: the step k, its observation x_k, and its
    message.

    With global variables `message` has a row for each first-level particle (use
    `message[z.origin]`), `first` holds log ψ_0 of every row, and k starts at 0, where x is x_1 and
    not used.
    """

    k: Any
    x: PyTree
    message: PyTree
    first: Any = None


class StateSpace(AbstractPreparedPath):
    """The densities γ_k ∝ p(x_{1:k}, z_{1:k}) ψ_k(z_k): K of them for K observations, or K+1 with
    global variables.

    Args:
        model: p(z_1), p(z_k | z_{k-1}), p(x_k | z_k).
        observations: x_{1:K}, a pytree of arrays with leading axis K.
        heuristic: ψ; its arrays are the parameters θ.
        prior: p(η) (a density, a distribution, or a function η -> log p(η)) of a model with global
            variables. Particles are then `Latent`, and proposals are `WithoutState(q(η), state)` at
            the first level and `NextState(kernel)` at the others, without a reverse kernel.
        eta: the table's values of η, which `prepare` fills in.

    Example:
        ```python
        class Walk(nvi.AbstractStateSpaceModel):
            def log_initial(self, z):
                return dist.Normal(0.0, 1.0).log_prob(z)

            def log_transition(self, z, z_prev):
                return dist.Normal(z_prev, 1.0).log_prob(z)

            def log_observation(self, x, z):
                return dist.Normal(z, 0.5).log_prob(x)

        path = nvi.StateSpace(Walk(), jnp.array([0.3, 0.9, 0.4]))
        path.num_levels, path.thetas().x
        ```
    """

    model: AbstractStateSpaceModel
    observations: PyTree
    heuristic: AbstractHeuristic
    prior: AbstractDensity | None
    eta: PyTree

    def __init__(
        self,
        model: AbstractStateSpaceModel,
        observations: PyTree,
        heuristic: AbstractHeuristic | None = None,
        *,
        prior: Any = None,
        eta: PyTree = None,
    ):
        if heuristic is not None and not isinstance(heuristic, AbstractHeuristic):
            raise TypeError(
                "A heuristic is an AbstractHeuristic with `messages` and `log_psi`; got"
                f" {type(heuristic).__name__}."
            )
        self.model, self.observations = model, observations
        self.heuristic = NoHeuristic() if heuristic is None else heuristic
        self.prior, self.eta = None if prior is None else as_density(prior), eta

    @property
    def num_steps(self) -> int:
        """K, the number of observations."""
        return jax.tree.leaves(self.observations)[0].shape[0]

    @property
    def num_levels(self) -> int:
        return self.num_steps if self.prior is None else self.num_steps + 1

    @property
    def needs_table(self) -> bool:
        return self.prior is not None

    def prepare(self, z: Latent) -> tuple["StateSpace", Latent]:
        rows = jnp.arange(z.origin.shape[0], dtype=z.origin.dtype)
        # Not tree_at: the field is empty before.
        path = StateSpace(
            self.model, self.observations, self.heuristic, prior=self.prior, eta=z.eta
        )
        return path, z._replace(origin=rows)

    def thetas(self) -> Step:
        if self.prior is None:
            later = self.heuristic.messages(None, self.observations).later
            return Step(jnp.arange(1, self.num_steps + 1), self.observations, later)
        steps = jnp.arange(self.num_levels)
        x = jax.tree.map(lambda x: jnp.concatenate([x[:1], x]), self.observations)
        if self.eta is None:
            return Step(steps, x, None)
        table = jax.vmap(lambda eta: self.heuristic.messages(eta, self.observations))(self.eta)
        first = (
            jnp.zeros((self.num_levels, *table.first.shape), table.first.dtype)
            .at[0]
            .set(table.first)
        )

        def pad(m):
            return jnp.concatenate([jnp.zeros_like(m[:, :1]), m], axis=1).swapaxes(0, 1)

        return Step(steps, x, jax.tree.map(pad, table.later), first)

    def stats(self, z: Particle) -> Particle:
        return z

    def log_gamma(self, theta: Step, stats: Particle, stats_prev: Particle | None) -> Scalar:
        if stats_prev is None and self.prior is not None:
            first = self.heuristic.messages(stats.eta, self.observations).first
            return self.prior.log_gamma(stats.eta) + first
        return (
            self._log_state(theta, stats, stats_prev)
            + self.model.log_observation(theta.x, stats)
            + self._log_psi(theta, stats)
        )

    def _log_state(self, theta: Step, z: Particle, z_prev: Particle | None) -> Scalar:
        """log p(z_k | z_{k-1}), or log p(z_1) where there is no state before."""
        if z_prev is None:
            return self.model.log_initial(z)
        if self.prior is None:
            return self.model.log_transition(z, z_prev)
        # Levels run in one scan, and the first state comes at the second of them.
        begin, go_on = self.model.log_initial(z), self.model.log_transition(z, z_prev)
        return jnp.where(theta.k == 1, begin, go_on)

    def log_gamma_prev(self, theta_prev: Step, stats_prev: Particle) -> Scalar:
        log_psi = self._log_psi(theta_prev, stats_prev)
        if self.prior is None:
            return log_psi
        return jnp.where(theta_prev.k == 0, theta_prev.first[stats_prev.origin], log_psi)

    def _log_psi(self, theta: Step, z: Particle) -> Scalar:
        """log ψ_k from θ_k's messages, k = 1 … K."""
        message = theta.message
        if self.prior is not None:
            message = jax.tree.map(lambda m: m[z.origin], message)
        return jnp.where(theta.k == self.num_steps, 0.0, self.heuristic.log_psi(message, z))

    def log_psi(self, k: Any, z: Particle) -> Scalar:
        """log ψ_k of any particle, without a table: its η need not be one of the first level's."""
        eta = None if self.prior is None else z.eta
        later, first = self.heuristic.messages(eta, self.observations)
        message = jax.tree.map(
            lambda m: jax.lax.dynamic_index_in_dim(m, jnp.maximum(k - 1, 0), keepdims=False), later
        )
        log_later = jnp.where(k == self.num_steps, 0.0, self.heuristic.log_psi(message, z))
        return jnp.where(k == 0, first, log_later)

    def trainable(self) -> PyTree:
        return trainable_fields(self, "heuristic")

    def learned(self, theta: Step) -> PyTree:
        def on(tree, flag):
            return jax.tree.map(lambda _: flag, tree)

        return Step(
            on(theta.k, False), on(theta.x, False), on(theta.message, True), on(theta.first, True)
        )


class WithoutState(AbstractSampleable):
    """q(η) as the proposal of the first level: no state yet, `state` only gives its shape and
    type.
    """

    eta: AbstractSampleable = eqx.field(converter=as_sampleable)
    state: PyTree

    def log_gamma(self, z: Latent) -> Scalar:
        return self.eta.log_gamma(z.eta)

    @property
    def log_Z(self) -> Scalar:
        return self.eta.log_Z

    @property
    def reparameterised(self) -> bool:
        return self.eta.reparameterised

    def sample(self, key: Key) -> Latent:
        return Latent(self.eta.sample(key), self.state, jnp.zeros((), jnp.int32))
