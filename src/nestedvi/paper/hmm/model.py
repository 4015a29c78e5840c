"""The hidden Markov model of section 5.2: Gaussian clusters η = (μ, τ) as global variables, a chain
of states z_{1:K} between them, and observations x_k ~ N(μ_{z_k}, 1/τ_{z_k}).

It has the model's densities, simulated series, and what is exact once η is known: the likelihood
p(x_{1:K} | η) and the smoothed states. It refuses to hold anything that is learned.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.grid.cells import cell_key
from nestedvi.paths.state_space import AbstractStateSpaceModel, Latent

__all__ = ["Clusters", "GaussianHMM", "log_normal", "log_normal_gamma", "simulate"]

_LOG_2PI = float(np.log(2 * np.pi))


class Clusters(NamedTuple):
    """η: mean and precision of each cluster."""

    mu: Float[Array, " clusters"]
    tau: Float[Array, " clusters"]


def log_normal(x: Array, mu: Array, tau: Array) -> Array:
    """log N(x; mean μ, precision τ)."""
    return 0.5 * (jnp.log(tau) - _LOG_2PI - tau * (x - mu) ** 2)


def log_normal_gamma(eta: Clusters, alpha: Any, beta: Any, mu: Any, nu: Any) -> Array:
    """log NormalGamma(μ, τ): τ ~ Gamma(α, rate β), μ | τ ~ N(μ, precision ν τ); elementwise."""
    log_tau = (
        alpha * jnp.log(beta) - gammaln(alpha) + (alpha - 1) * jnp.log(eta.tau) - beta * eta.tau
    )
    return log_tau + log_normal(eta.mu, mu, nu * eta.tau)


def _emissions(
    eta: Clusters, xs: Float[Array, " steps"], used: Any = True
) -> Float[Array, "steps clusters"]:
    """log p(x_k | z_k = m, η); a cluster that is not used made none of them."""
    return jnp.where(used, log_normal(xs[:, None], eta.mu, eta.tau), -1e10)


class GaussianHMM(AbstractStateSpaceModel):
    """M clusters with NormalGamma(α, β, μ_0, ν) parameters; a chain that stays with probability
    `stay`, else moves anywhere.
    """

    num_clusters: int = eqx.field(static=True, default=4)
    alpha: float = eqx.field(static=True, default=8.0)
    beta: float = eqx.field(static=True, default=8.0)
    mu: float = eqx.field(static=True, default=0.0)
    nu: float = eqx.field(static=True, default=0.001)
    stay: float = eqx.field(static=True, default=0.9)

    @property
    def log_transitions(self) -> Float[Array, "clusters clusters"]:
        """log A."""
        others = (1 - self.stay) / (self.num_clusters - 1)
        return jnp.log(jnp.where(jnp.eye(self.num_clusters, dtype=bool), self.stay, others))

    def log_prior(self, eta: Clusters) -> Scalar:
        """log p(η)."""
        return jnp.sum(log_normal_gamma(eta, self.alpha, self.beta, self.mu, self.nu))

    def log_initial(self, z: Latent) -> Scalar:
        return jnp.full((), -np.log(self.num_clusters), z.eta.mu.dtype)

    def log_transition(self, z: Latent, z_prev: Latent) -> Scalar:
        return self.log_transitions[z_prev.state, z.state].astype(z.eta.mu.dtype)

    def log_observation(self, x: Scalar, z: Latent) -> Scalar:
        return log_normal(x, z.eta.mu[z.state], z.eta.tau[z.state])

    def sample_prior(self, key: Key) -> Clusters:
        """η ~ p(η)."""
        key_tau, key_mu = jax.random.split(key)
        tau = jax.random.gamma(key_tau, self.alpha, (self.num_clusters,)) / self.beta
        return Clusters(
            self.mu + jax.random.normal(key_mu, tau.shape) / jnp.sqrt(self.nu * tau), tau
        )

    def simulate(
        self, key: Key, num_steps: int
    ) -> tuple[Clusters, Int[Array, " steps"], Float[Array, " steps"]]:
        """η, z_{1:K} and x_{1:K} from the model."""
        key_eta, key_first, key_rest, key_x = jax.random.split(key, 4)
        eta = self.sample_prior(key_eta)
        first = jax.random.randint(key_first, (), 0, self.num_clusters)

        def step(z, key):
            return jax.random.categorical(key, self.log_transitions[z]), z

        _, z = jax.lax.scan(step, first, jax.random.split(key_rest, num_steps))
        return eta, z, eta.mu[z] + jax.random.normal(key_x, (num_steps,)) / jnp.sqrt(eta.tau[z])

    def log_likelihood(self, eta: Clusters, xs: Float[Array, " steps"], used: Any = True) -> Scalar:
        """log p(x_{1:K} | η), exact: the forward algorithm, normalised at every step.

        With `used` (a flag a cluster) the probability that in addition no other cluster is ever
        visited.
        """
        emissions = _emissions(eta, xs, used)
        A = jnp.exp(self.log_transitions).astype(emissions.dtype)

        def step(predicted, log_e):
            # A has no zeros: whatever made x can be reached, and the sum cannot vanish.
            top = jnp.max(log_e)
            joint = predicted * jnp.exp(log_e - top)
            total = jnp.sum(joint)
            # Not a matrix product: accelerators round its factors to ten bits, and 200 steps add
            # that up.
            return jnp.sum((joint / total)[:, None] * A, axis=0), top + jnp.log(total)

        start = jnp.full(self.num_clusters, 1 / self.num_clusters, emissions.dtype)
        return jnp.sum(jax.lax.scan(step, start, emissions)[1])

    def smooth(
        self, eta: Clusters, xs: Float[Array, " steps"], used: Any = True
    ) -> Float[Array, "steps clusters"]:
        """p(z_k | x_{1:K}, η) for every k, given that only the clusters in `used` are ever
        visited.
        """
        emissions = _emissions(eta, xs, used)
        log_A = self.log_transitions.astype(emissions.dtype)

        def forward_step(predicted, log_e):
            filtered = jax.nn.log_softmax(predicted + log_e)
            return logsumexp(filtered[:, None] + log_A, axis=0), filtered

        def backward_step(message, log_e):
            return jax.nn.log_softmax(logsumexp(log_A + log_e + message, axis=1)), message

        start = jnp.zeros(self.num_clusters, emissions.dtype)
        filtered = jax.lax.scan(forward_step, start, emissions)[1]
        messages = jax.lax.scan(backward_step, start, emissions, reverse=True)[1]
        return jax.nn.softmax(filtered + messages)


def simulate(seed: int, part: str, num: int, num_steps: int) -> tuple[Any, Any, Any]:
    """Clusters, states and observations of `num` series of one part ("train" or "test"); the first
    ones do not depend on how many there are.
    """
    keys = jax.vmap(lambda i: jax.random.fold_in(cell_key(seed, part), i))(jnp.arange(num))
    return jax.jit(jax.vmap(lambda key: GaussianHMM().simulate(key, num_steps)))(keys)
