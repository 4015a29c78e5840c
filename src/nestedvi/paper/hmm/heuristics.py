"""Heuristic factors of the table's rows, which the path multiplies its densities by: a hand-coded
mixture, the paper's network, and a learned backward recursion that sees z_k. (No heuristic at all
is `NoHeuristic` of the library.) They refuse to propose anything.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.paper.hmm.model import Clusters, log_normal
from nestedvi.paper.hmm.networks import features, near_zero
from nestedvi.paths.heuristics import AbstractHeuristic, Messages
from nestedvi.paths.state_space import Latent

__all__ = ["BackwardRecursion", "MixtureHeuristic"]


class MixtureHeuristic(AbstractHeuristic):
    """ψ(x_{k+1:K} | η) = Π_l Σ_m N(x_l; η_m) ψ(m | η, x_l): hand-coded with ψ(m) = 1/M, or with a
    network's softmax over m.
    """

    hidden: eqx.nn.Linear | None = None
    out: eqx.nn.Linear | None = None

    @classmethod
    def neural(cls, *, key: Key, width: int) -> "MixtureHeuristic":
        """The network of the paper's appendix; it starts as the hand-coded mixture."""
        key_hidden, key_out = jax.random.split(key)
        return cls(
            eqx.nn.Linear(5, width, key=key_hidden), near_zero(eqx.nn.Linear(width, 1, key=key_out))
        )

    def _log_points(self, eta: Clusters, xs: Float[Array, " steps"]) -> Float[Array, " steps"]:
        log_e = log_normal(xs[:, None], eta.mu, eta.tau)
        if self.hidden is None or self.out is None:
            return logsumexp(log_e, axis=-1) - np.log(eta.mu.shape[0])
        hidden, out = self.hidden, self.out
        inputs = jax.vmap(lambda x: jnp.stack(features(x, eta.mu, eta.tau), axis=-1))(xs)
        logits = jax.vmap(jax.vmap(lambda f: out(jnp.tanh(hidden(f)))[0]))(inputs)
        return logsumexp(log_e + jax.nn.log_softmax(logits, axis=-1), axis=-1)

    def messages(self, eta: Clusters, observations: Float[Array, " steps"]) -> Messages:
        points = self._log_points(eta, observations)
        left = jnp.cumsum(points[::-1])[::-1]
        return Messages(jnp.concatenate([left[1:], jnp.zeros_like(left[:1])]), left[0])

    def log_psi(self, message: Scalar, z: Latent) -> Scalar:
        return message


class BackwardRecursion(AbstractHeuristic):
    """A heuristic that sees z_k: ψ_k(m, η) = Σ_m' T(m, m') N(x_{k+1}; η_m') e^{c(m')} ψ_{k+1}(m',
    η), T and c learned.

    With T uniform and c = 0, where it starts, it is the hand-coded mixture; with T = A it is the
    exact p(x_{k+1:K} | z_k, η). c is a network of (x, η_m'), as in `MixtureHeuristic`.
    """

    log_T: Float[Array, "clusters clusters"]
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, num_clusters: int, *, key: Key, width: int):
        key_hidden, key_out = jax.random.split(key)
        self.log_T = jnp.zeros((num_clusters, num_clusters))
        self.hidden = eqx.nn.Linear(5, width, key=key_hidden)
        self.out = near_zero(eqx.nn.Linear(width, 1, key=key_out))

    def messages(self, eta: Clusters, observations: Float[Array, " steps"]) -> Messages:
        log_e = log_normal(observations[:, None], eta.mu, eta.tau)
        inputs = jax.vmap(lambda x: jnp.stack(features(x, eta.mu, eta.tau), axis=-1))(observations)
        log_e = log_e + jax.vmap(jax.vmap(lambda f: self.out(jnp.tanh(self.hidden(f)))[0]))(inputs)
        log_T = jax.nn.log_softmax(self.log_T, axis=-1)

        def backward_step(message, log_e):
            return logsumexp(log_T + log_e + message, axis=1), message

        _, later = jax.lax.scan(backward_step, jnp.zeros_like(log_e[0]), log_e, reverse=True)
        first = logsumexp(log_e[0] + later[0]) - np.log(log_e.shape[1])
        return Messages(later, first)

    def log_psi(self, message: Float[Array, " clusters"], z: Latent) -> Scalar:
        return message[z.state]
