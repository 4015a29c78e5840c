"""Moves of η between levels, for the last row of the table: random-walk Metropolis that leaves γ_k
invariant. When to move is `sampler.refresh`'s.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.kernels.mcmc import metropolis
from nestedvi.paper.hmm.model import Clusters, GaussianHMM
from nestedvi.paper.hmm.statistics import Statistics
from nestedvi.paths.state_space import Latent, StateSpace
from nestedvi.sampler.refresh import AbstractRefresh

__all__ = ["ClusterRefresh"]


class ClusterRefresh(AbstractRefresh):
    """Random-walk Metropolis on (μ, log τ) of all clusters; `scale` is in units of a cluster's
    posterior standard deviation when the observations are shared out evenly."""

    model: GaussianHMM
    steps: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def start(self, z: Latent) -> Statistics:
        return Statistics(*(jnp.zeros_like(z.eta.mu) for _ in range(3)))

    def remember(
        self, memory: Statistics, states: Int[Array, " steps"], xs: Float[Array, " steps"]
    ) -> Statistics:
        t = (states[:, None] == jnp.arange(memory.number.shape[0])).astype(xs.dtype)
        count = jnp.sum(t, axis=0)
        mean = jnp.sum(t * xs[:, None], axis=0) / jnp.maximum(count, 1)
        spread = jnp.sum(t * (xs[:, None] - mean) ** 2, axis=0)
        total = memory.number + count
        shift = mean - memory.mean
        share = count / jnp.maximum(total, 1)
        return Statistics(
            total,
            memory.mean + share * shift,
            memory.spread + spread + share * memory.number * shift**2,
        )

    def log_gamma(
        self, eta: Clusters, z: Latent, memory: Statistics, k: Any, path: StateSpace
    ) -> Scalar:
        """log γ_k(η, z_{1:k}) in the coordinates (μ, log τ), up to what does not depend on η."""
        squares = memory.spread + memory.number * (memory.mean - eta.mu) ** 2
        log_x = jnp.sum(0.5 * memory.number * jnp.log(eta.tau) - 0.5 * eta.tau * squares)
        return (
            self.model.log_prior(eta)
            + log_x
            + path.log_psi(k, z._replace(eta=eta))
            + jnp.sum(jnp.log(eta.tau))
        )

    def move(
        self, key: Key, z: Latent, memory: Statistics, k: Any, path: StateSpace
    ) -> tuple[Clusters, Scalar]:
        per_cluster = path.num_steps / self.model.num_clusters
        size = self.scale / per_cluster**0.5

        def step(eta, key_step):
            key_mu, key_tau, key_accept = jax.random.split(key_step, 3)
            mu = eta.mu + size * jax.random.normal(key_mu, eta.mu.shape, eta.mu.dtype)
            factor = jnp.exp(
                size * 2**0.5 * jax.random.normal(key_tau, eta.tau.shape, eta.tau.dtype)
            )
            proposal = Clusters(mu, eta.tau * factor)
            # Both densities anew: with the accepted one carried along, XLA's CPU code moved 10 000
            # chains and more wrongly.
            log_ratio = self.log_gamma(proposal, z, memory, k, path) - self.log_gamma(
                eta, z, memory, k, path
            )
            # The rule sees the difference of the two log densities only.
            here = jnp.zeros_like(log_ratio)
            log_uniform = jnp.log(jax.random.uniform(key_accept))
            eta, _, accept = metropolis(log_uniform, eta, here, proposal, log_ratio)
            return eta, accept

        eta, accepted = jax.lax.scan(step, z.eta, jax.random.split(key, self.steps))
        return eta, jnp.mean(accepted.astype(eta.mu.dtype))
