"""The paper's proposals: q(η | x_{1:K}), a NormalGamma for each cluster from soft assignments by a
network, and q(z_k | x_k, z_{k-1}, η).

`NormalGammas` is the family of both proposals for η, this one and that of `baum_welch`. They refuse
to see any η but the one that they are given or draw.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.kernels.base import AbstractKernel, Context
from nestedvi.paper.hmm.model import Clusters, GaussianHMM, log_normal, log_normal_gamma
from nestedvi.paper.hmm.networks import SCALE, features, near_zero
from nestedvi.paper.hmm.statistics import Statistics
from nestedvi.paths.state_space import Latent

__all__ = ["ClusterKernel", "Head", "NeuralStatistics", "NormalGammas"]


class NormalGammas(AbstractSampleable):
    """Σ_r w_r Π_m NormalGamma_m^{(r)} on clusters; `symmetric` averages it over all ways to name
    the clusters.

    The posterior of η does not change when clusters exchange their names. A proposal that names
    them in one way only sees 1/M! of it, and its log Ẑ is log M! too low unless a particle finds
    the others by chance.
    """

    logits: Float[Array, " parts"]
    alpha: Float[Array, "parts clusters"]
    beta: Float[Array, "parts clusters"]
    mu: Float[Array, "parts clusters"]
    nu: Float[Array, "parts clusters"]
    symmetric: bool = eqx.field(static=True, default=False)

    @classmethod
    def prior(cls, model: GaussianHMM) -> "NormalGammas":
        """p(η) of the model."""
        alpha, beta, mu, nu = (
            jnp.full((1, model.num_clusters), x)
            for x in (model.alpha, model.beta, model.mu, model.nu)
        )
        return cls(jnp.zeros(1), alpha, beta, mu, nu)

    @property
    def _names(self) -> Int[np.ndarray, "permutations clusters"]:
        num = self.alpha.shape[-1]
        return np.array(
            list(itertools.permutations(range(num))) if self.symmetric else [range(num)]
        )

    def log_gamma(self, z: Clusters) -> Scalar:
        # pair[r, m, j]: cluster j of η under factor m of part r.
        eta = Clusters(z.mu[None, None, :], z.tau[None, None, :])
        pair = log_normal_gamma(
            eta, *(x[:, :, None] for x in (self.alpha, self.beta, self.mu, self.nu))
        )
        names = self._names
        joint = jnp.sum(pair[:, np.arange(names.shape[1])[None, :], names], axis=-1)
        log_w = jax.nn.log_softmax(self.logits)[:, None]
        return logsumexp(log_w + joint) - np.log(len(names))

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros(())

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Clusters:
        key_part, key_tau, key_mu, key_name = jax.random.split(key, 4)
        r = jax.random.categorical(key_part, self.logits)
        alpha, beta, mu, nu = (x[r] for x in (self.alpha, self.beta, self.mu, self.nu))
        # A precision under the smallest normal number would be zero and have no logarithm.
        tau = jnp.maximum(jax.random.gamma(key_tau, alpha) / beta, 1e-20)
        mu = mu + jax.random.normal(key_mu, tau.shape, tau.dtype) / jnp.sqrt(nu * tau)
        names = jnp.asarray(self._names)
        order = names[jax.random.randint(key_name, (), 0, len(names))]
        return Clusters(mu[order], tau[order])


class Head(eqx.Module):
    """From soft counts, sums and squares of each cluster to a NormalGamma: the conjugate posterior
    times learned factors.
    """

    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, width: int, *, key: Key):
        key_hidden, key_out = jax.random.split(key)
        self.hidden = eqx.nn.Linear(5, width, key=key_hidden)
        self.out = near_zero(eqx.nn.Linear(width, 4, key=key_out))

    def __call__(self, model: GaussianHMM, statistics: Statistics, num_steps: int):
        count, mean, spread = statistics
        nu = model.nu + count
        mu = (model.nu * model.mu + count * mean) / nu
        alpha = model.alpha + 0.5 * count
        beta = model.beta + 0.5 * spread + 0.5 * model.nu * count * (mean - model.mu) ** 2 / nu
        share = count / num_steps
        inputs = jnp.stack(
            [
                share,
                jnp.log(count + 1e-2) / 5,
                mean / SCALE,
                jnp.log(beta / alpha) / 3,
                jnp.sqrt(share),
            ],
            axis=-1,
        )
        change = jax.vmap(lambda f: self.out(jnp.tanh(self.hidden(f))))(inputs)
        # Each factor stays within e^±8: what a network gives for an odd instance must not make a
        # density of zeros.
        a, b, n = (jnp.exp(8 * jnp.tanh(change[:, i] / 8)) for i in range(3))
        # Mean moves in units of the cluster's own standard deviation of the mean.
        return alpha * a, beta * a * b, mu + change[:, 3] * jnp.sqrt(beta / (alpha * nu)), nu * n


class NeuralStatistics(eqx.Module):
    """q(η | x) of the paper's appendix: a network assigns each x_k softly to clusters, sums over k
    are the statistics.
    """

    hidden: eqx.nn.Linear
    assign: eqx.nn.Linear
    head: Head
    symmetric: bool = eqx.field(static=True)

    def __init__(self, model: GaussianHMM, *, key: Key, width: int, symmetric: bool = False):
        keys = jax.random.split(key, 3)
        self.hidden = eqx.nn.Linear(1, width, key=keys[0])
        self.assign = eqx.nn.Linear(width, model.num_clusters, key=keys[1])
        self.head, self.symmetric = Head(width, key=keys[2]), symmetric

    def __call__(
        self, model: GaussianHMM, xs: Float[Array, " steps"], fits: None = None
    ) -> NormalGammas:
        t = jax.vmap(lambda x: jax.nn.softmax(self.assign(jnp.tanh(self.hidden(x[None] / SCALE)))))(
            xs
        )
        alpha, beta, mu, nu = (
            x[None] for x in self.head(model, Statistics.soft(t, xs), xs.shape[0])
        )
        return NormalGammas(jnp.zeros(1), alpha, beta, mu, nu, self.symmetric)


class ClusterKernel(AbstractKernel):
    """q(z_k | x_k, z_{k-1}, η): log N(x_k; η_m) plus a network of x_k, η_m and whether the chain
    was in m, softmax over m.

    At the first step no cluster was the last one; the network has a feature for it. `guided` adds
    log ψ_k(m, η), for a heuristic whose messages have one entry a state.
    """

    hidden: eqx.nn.Linear
    out: eqx.nn.Linear
    guided: bool = eqx.field(static=True)

    def __init__(self, *, key: Key, width: int, guided: bool = False):
        key_hidden, key_out = jax.random.split(key)
        self.hidden = eqx.nn.Linear(7, width, key=key_hidden)
        self.out = near_zero(eqx.nn.Linear(width, 1, key=key_out))
        self.guided = guided

    @property
    def reparameterised(self) -> bool:
        return False

    def log_probs(self, z: Latent, context: Context) -> Float[Array, " clusters"]:
        """log q(· | x_k, z_{k-1}, η)."""
        k, x, message, _ = context.theta
        mu, tau = z.eta.mu, z.eta.tau
        log_e = log_normal(x, mu, tau)
        first = jnp.broadcast_to(k == 1, mu.shape).astype(mu.dtype)
        was = (jnp.arange(mu.shape[0]) == z.state).astype(mu.dtype) * (1 - first)
        inputs = jnp.stack([*features(x, mu, tau), was, first], axis=-1)
        logits = log_e + jax.vmap(lambda f: self.out(jnp.tanh(self.hidden(f)))[0])(inputs)
        if self.guided:
            logits = logits + message[z.origin]
        return jax.nn.log_softmax(logits)

    def sample(self, key: Key, z: Latent, context: Context) -> Int[Array, ""]:
        return jax.random.categorical(key, self.log_probs(z, context)).astype(z.state.dtype)

    def log_prob(self, z_new: Int[Array, ""], z: Latent, context: Context) -> Scalar:
        return self.log_probs(z, context)[z_new]

    def log_prob_score(self, z_new: Int[Array, ""], z: Latent, context: Context) -> Scalar:
        return self.log_prob(z_new, z, context)
