"""The hidden Markov model of section 5.2: Gaussian clusters η = (μ, τ) as global variables, and
what is learned for it.

It has the model itself with its exact likelihood, proposals q(η | x) and q(z_k | x_k, z_{k-1}, η),
and heuristic factors from a hand-coded mixture to a learned backward recursion. It refuses to train
and to evaluate.
"""

import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.kernels.base import AbstractKernel, Context, Transition
from nestedvi.kernels.product import NextState
from nestedvi.particles.resampling import Resampling
from nestedvi.paths.global_variables import (
    AbstractGlobalModel,
    AbstractMessages,
    GlobalStateSpace,
    Latent,
    Messages,
    WithoutState,
)
from nestedvi.sampler.nested import NestedSampler, Shared
from nestedvi.sampler.refresh import AbstractRefresh

__all__ = [
    "BackwardRecursion",
    "ClusterKernel",
    "ClusterRefresh",
    "Clusters",
    "ExpectationMaximisation",
    "Fits",
    "GaussianHMM",
    "HMMProgram",
    "LogPrecision",
    "MixtureHeuristic",
    "NeuralStatistics",
    "NormalGammas",
    "Series",
    "Statistics",
    "by_mean",
]

_LOG_2PI = float(np.log(2 * np.pi))
# Observations spread over about ±100: networks see them, and cluster means, in units of the prior's
# standard deviation.
_SCALE = 30.0
_PARAMETERS = ("alpha", "beta", "mu", "nu")


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


class GaussianHMM(AbstractGlobalModel):
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
        return jnp.sum(log_normal_gamma(eta, self.alpha, self.beta, self.mu, self.nu))

    def log_initial(self, z: Int[Array, ""], eta: Clusters) -> Scalar:
        return jnp.full((), -np.log(self.num_clusters), eta.mu.dtype)

    def log_transition(self, z: Int[Array, ""], z_prev: Int[Array, ""], eta: Clusters) -> Scalar:
        return self.log_transitions[z_prev, z].astype(eta.mu.dtype)

    def log_observation(self, x: Scalar, z: Int[Array, ""], eta: Clusters) -> Scalar:
        return log_normal(x, eta.mu[z], eta.tau[z])

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

        def ahead(predicted, log_e):
            filtered = jax.nn.log_softmax(predicted + log_e)
            return logsumexp(filtered[:, None] + log_A, axis=0), filtered

        def back(message, log_e):
            return jax.nn.log_softmax(logsumexp(log_A + log_e + message, axis=1)), message

        start = jnp.zeros(self.num_clusters, emissions.dtype)
        filtered = jax.lax.scan(ahead, start, emissions)[1]
        messages = jax.lax.scan(back, start, emissions, reverse=True)[1]
        return jax.nn.softmax(filtered + messages)


class LogPrecision(AbstractSampleable):
    """A density of η in the coordinates (μ, log τ), as one vector; for samplers that want no
    bounds.
    """

    density: AbstractSampleable

    def clusters(self, z: Float[Array, " dim"]) -> Clusters:
        """η from its coordinates."""
        mu, log_tau = jnp.split(z, 2)
        return Clusters(mu, jnp.exp(log_tau))

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        return self.density.log_gamma(self.clusters(z)) + jnp.sum(jnp.split(z, 2)[1])

    @property
    def log_Z(self) -> Scalar:
        return self.density.log_Z

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Float[Array, " dim"]:
        eta = self.density.sample(key)
        return jnp.concatenate([eta.mu, jnp.log(eta.tau)])


def by_mean(z: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """(μ, log τ) with the clusters named in the order of their means."""
    mu, log_tau = jnp.split(z, 2)
    order = jnp.argsort(mu)
    return jnp.concatenate([mu[order], log_tau[order]])


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


class Statistics(NamedTuple):
    """Number, mean and sum of squared deviations of each cluster's observations: all that p(x, z |
    η) needs.
    """

    number: Float[Array, " clusters"]
    mean: Float[Array, " clusters"]
    spread: Float[Array, " clusters"]

    @classmethod
    def soft(cls, t: Float[Array, "steps clusters"], xs: Float[Array, " steps"]) -> "Statistics":
        """From assignments t of each observation to clusters."""
        number = jnp.sum(t, axis=0)
        mean = jnp.sum(t * xs[:, None], axis=0) / (number + 1e-3)
        return cls(number, mean, jnp.sum(t * (xs[:, None] - mean) ** 2, axis=0))


class _Head(eqx.Module):
    """From soft counts, sums and squares of each cluster to a NormalGamma: the conjugate posterior
    times learned factors.
    """

    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, width: int, *, key: Key):
        key_hidden, key_out = jax.random.split(key)
        self.hidden = eqx.nn.Linear(5, width, key=key_hidden)
        self.out = _small(eqx.nn.Linear(width, 4, key=key_out))

    def __call__(self, model: GaussianHMM, found: Statistics, num_steps: int):
        count, mean, spread = found
        nu = model.nu + count
        mu = (model.nu * model.mu + count * mean) / nu
        alpha = model.alpha + 0.5 * count
        beta = model.beta + 0.5 * spread + 0.5 * model.nu * count * (mean - model.mu) ** 2 / nu
        share = count / num_steps
        features = jnp.stack(
            [
                share,
                jnp.log(count + 1e-2) / 5,
                mean / _SCALE,
                jnp.log(beta / alpha) / 3,
                jnp.sqrt(share),
            ],
            axis=-1,
        )
        change = jax.vmap(lambda f: self.out(jnp.tanh(self.hidden(f))))(features)
        # Each factor stays within e^±8: what a network says of an odd instance must not make a
        # density of zeros.
        a, b, n = (jnp.exp(8 * jnp.tanh(change[:, i] / 8)) for i in range(3))
        # Mean moves in units of the cluster's own standard deviation of the mean.
        return alpha * a, beta * a * b, mu + change[:, 3] * jnp.sqrt(beta / (alpha * nu)), nu * n


def _small(layer: eqx.nn.Linear) -> eqx.nn.Linear:
    """A layer that starts near zero, so that what it corrects starts as it is."""

    def zero(x):
        return 0.01 * x

    return eqx.tree_at(lambda l: (l.weight, l.bias), layer, (zero(layer.weight), zero(layer.bias)))


class NeuralStatistics(eqx.Module):
    """q(η | x) of the paper's appendix: a network assigns each x_k softly to clusters, sums over k
    are the statistics.
    """

    hidden: eqx.nn.Linear
    assign: eqx.nn.Linear
    head: _Head
    symmetric: bool = eqx.field(static=True)

    def __init__(self, model: GaussianHMM, *, key: Key, width: int = 128, symmetric: bool = False):
        keys = jax.random.split(key, 3)
        self.hidden = eqx.nn.Linear(1, width, key=keys[0])
        self.assign = eqx.nn.Linear(width, model.num_clusters, key=keys[1])
        self.head, self.symmetric = _Head(width, key=keys[2]), symmetric

    def __call__(
        self, model: GaussianHMM, xs: Float[Array, " steps"], seen: None = None
    ) -> NormalGammas:
        t = jax.vmap(
            lambda x: jax.nn.softmax(self.assign(jnp.tanh(self.hidden(x[None] / _SCALE))))
        )(xs)
        alpha, beta, mu, nu = (
            x[None] for x in self.head(model, Statistics.soft(t, xs), xs.shape[0])
        )
        return NormalGammas(jnp.zeros(1), alpha, beta, mu, nu, self.symmetric)


class Fits(NamedTuple):
    """Where Baum-Welch ended, one entry a start: η, the clusters in use, their statistics, and log
    p(x | η).
    """

    eta: Clusters
    used: Any
    found: Statistics
    log_x: Any


class ExpectationMaximisation(eqx.Module):
    """q(η | x) around the posterior's modes: assignments by a few Baum-Welch steps from several
    starts, one part a start.

    The steps are a fixed computation. What is learned turns each start's statistics into a
    NormalGamma, and sharpens or flattens the starts' weights, which are estimates of their
    evidence: log p(x, η) − log q_r(η) at the mode where the start ended.
    """

    head: _Head
    sharpness: Float[Array, ""]
    num_steps: int = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True)

    def __init__(
        self,
        model: GaussianHMM,
        *,
        key: Key,
        width: int = 128,
        num_steps: int = 12,
        symmetric: bool = True,
    ):
        self.head = _Head(width, key=key)
        self.sharpness = jnp.zeros(())
        self.num_steps, self.symmetric = num_steps, symmetric

    def look(self, model: GaussianHMM, xs: Float[Array, " steps"]) -> Fits:
        """The fixed computation, which can be done once for every series before training."""

        def climb(mu, used):
            def step(eta, _):
                return _maximise(model, xs, used * model.smooth(eta, xs, used)), None

            eta, _ = jax.lax.scan(step, Clusters(mu, jnp.ones_like(mu)), None, self.num_steps)
            found = Statistics.soft(used * model.smooth(eta, xs, used), xs)
            return Fits(eta, used, found, model.log_likelihood(eta, xs, used))

        several = jax.vmap(climb)(*_starts(xs, model.num_clusters))
        # Baum-Welch cannot leave a fit in which one cluster covers two groups and another group is
        # cut in half. Fits without the last cluster cover too much somewhere: each of their
        # clusters is split in turn.
        fewer = [
            i for i, num in enumerate(_sizes(model.num_clusters)) if num == model.num_clusters - 1
        ]
        split = jax.vmap(climb)(
            *(
                jnp.concatenate(x)
                for x in zip(*(_splits(several.eta, i) for i in fewer), strict=True)
            )
        )
        return jax.tree.map(lambda *x: jnp.concatenate(x), several, split)

    def __call__(
        self, model: GaussianHMM, xs: Float[Array, " steps"], seen: Fits | None = None
    ) -> NormalGammas:
        eta, used, found, log_x = self.look(model, xs) if seen is None else seen
        alpha, beta, mu, nu = jax.vmap(lambda one: self.head(model, one, xs.shape[0]))(found)
        log_prior = log_normal_gamma(eta, model.alpha, model.beta, model.mu, model.nu)
        # A cluster without observations keeps its prior, which then costs nothing.
        evidence = log_x + jnp.sum(
            jnp.where(used, log_prior - log_normal_gamma(eta, alpha, beta, mu, nu), 0.0), axis=-1
        )
        # No start is shut out: a mode that looks poor may be the one that the others missed.
        behind = jnp.maximum(evidence - jnp.max(evidence), -6.0)
        # Last the prior itself, in case none of them holds.
        prior = NormalGammas.prior(model)
        logits = jnp.append(jnp.exp(self.sharpness) * behind, -4.0)
        both = [
            jnp.concatenate([x, getattr(prior, name)])
            for name, x in zip(_PARAMETERS, (alpha, beta, mu, nu), strict=True)
        ]
        return NormalGammas(logits, both[0], both[1], both[2], both[3], self.symmetric)


def _maximise(model: GaussianHMM, xs: Array, t: Array) -> Clusters:
    """The mode of μ and the mean of τ given assignments."""
    count = jnp.sum(t, axis=0)
    mu = (jnp.sum(t * xs[:, None], axis=0) + model.nu * model.mu) / (count + model.nu)
    spread = jnp.sum(t * (xs[:, None] - mu) ** 2, axis=0)
    return Clusters(mu, (model.alpha + 0.5 * count) / (model.beta + 0.5 * spread))


def _spread_out(xs: Array, num: int) -> Array:
    """Points that lie far from each other: each is the observation farthest from those before
    it.
    """
    chosen = jnp.full(num, jnp.min(xs))
    for i in range(1, num):
        distance = jnp.min(jnp.abs(xs[:, None] - chosen[None, :i]), axis=1)
        chosen = chosen.at[i].set(xs[jnp.argmax(distance)])
    return chosen


def _sizes(num: int) -> list[int]:
    """How many clusters each start uses: all, and with one or two left out, from which no
    observation came.
    """
    return [n for n in range(num, max(0, num - 3), -1) for _ in range(2)]


def _starts(xs: Array, num: int) -> tuple[Float[Array, "starts clusters"], Array]:
    """Where Baum-Welch begins, and which clusters it uses: far-apart points and quantiles, for each
    of `_sizes`.
    """
    ordered = jnp.sort(xs)

    def quantiles(n):
        return ordered[((np.arange(n) + 0.5) / n * xs.shape[0]).astype(int)]

    starts = [
        (_spread_out if i % 2 == 0 else lambda _, n: quantiles(n))(xs, n)
        for i, n in enumerate(_sizes(num))
    ]
    used = jnp.stack([jnp.arange(num) < start.shape[0] for start in starts])
    return jnp.stack([jnp.pad(start, (0, num - start.shape[0])) for start in starts]), used


def _splits(eta: Clusters, i: int) -> tuple[Float[Array, "starts clusters"], Array]:
    """Fit i, which leaves the last cluster out, with each of its clusters split one standard
    deviation to either side.
    """
    mu, width = eta.mu[i], eta.tau[i] ** -0.5
    num = mu.shape[0]
    halves = [mu.at[m].add(-width[m]).at[-1].set(mu[m] + width[m]) for m in range(num - 1)]
    return jnp.stack(halves), jnp.ones((num - 1, num), bool)


class ClusterKernel(AbstractKernel):
    """q(z_k | x_k, z_{k-1}, η): log N(x_k; η_m) plus a network of x_k, η_m and whether the chain
    was in m, softmax over m.

    At the first step no cluster was the last one; the network is told so. `guided` adds log ψ_k(m,
    η), for a heuristic whose messages have one entry a state.
    """

    hidden: eqx.nn.Linear
    out: eqx.nn.Linear
    guided: bool = eqx.field(static=True)

    def __init__(self, *, key: Key, width: int = 128, guided: bool = False):
        key_hidden, key_out = jax.random.split(key)
        self.hidden = eqx.nn.Linear(7, width, key=key_hidden)
        self.out = _small(eqx.nn.Linear(width, 1, key=key_out))
        self.guided = guided

    @property
    def reparameterised(self) -> bool:
        return False

    def log_probs(self, z: Latent, context: Context) -> Float[Array, " clusters"]:
        """log q(· | x_k, z_{k-1}, η)."""
        k, x, _, message = context.theta
        mu, tau = z.eta.mu, z.eta.tau
        log_e = log_normal(x, mu, tau)
        first = jnp.broadcast_to(k == 1, mu.shape).astype(mu.dtype)
        was = (jnp.arange(mu.shape[0]) == z.state).astype(mu.dtype) * (1 - first)
        features = jnp.stack([*_features(x, mu, tau), was, first], axis=-1)
        logits = log_e + jax.vmap(lambda f: self.out(jnp.tanh(self.hidden(f)))[0])(features)
        if self.guided:
            logits = logits + message[z.origin]
        return jax.nn.log_softmax(logits)

    def sample(self, key: Key, z: Latent, context: Context) -> Int[Array, ""]:
        return jax.random.categorical(key, self.log_probs(z, context)).astype(z.state.dtype)

    def log_prob(self, z_new: Int[Array, ""], z: Latent, context: Context) -> Scalar:
        return self.log_probs(z, context)[z_new]

    def log_prob_score(self, z_new: Int[Array, ""], z: Latent, context: Context) -> Scalar:
        return self.log_prob(z_new, z, context)


def _features(x: Array, mu: Array, tau: Array) -> tuple[Array, ...]:
    """Scaled views of one observation and its clusters; every one is bounded or grows slowly."""
    residual = (x - mu) * jnp.sqrt(tau)
    return (
        jnp.broadcast_to(x / _SCALE, mu.shape),
        mu / _SCALE,
        jnp.log(tau),
        jnp.tanh(residual / 3),
        jnp.log1p(residual**2) / 5,
    )


class MixtureHeuristic(AbstractMessages):
    """ψ(x_{k+1:K} | η) = Π_l Σ_m N(x_l; η_m) ψ(m | η, x_l): hand-coded with ψ(m) = 1/M, or with a
    network's softmax over m.
    """

    hidden: eqx.nn.Linear | None = None
    out: eqx.nn.Linear | None = None

    @classmethod
    def neural(cls, *, key: Key, width: int = 128) -> "MixtureHeuristic":
        """The network of the paper's appendix; it starts as the hand-coded mixture."""
        key_hidden, key_out = jax.random.split(key)
        return cls(
            eqx.nn.Linear(5, width, key=key_hidden), _small(eqx.nn.Linear(width, 1, key=key_out))
        )

    def _log_points(self, eta: Clusters, xs: Float[Array, " steps"]) -> Float[Array, " steps"]:
        log_e = log_normal(xs[:, None], eta.mu, eta.tau)
        if self.hidden is None or self.out is None:
            return logsumexp(log_e, axis=-1) - np.log(eta.mu.shape[0])
        hidden, out = self.hidden, self.out
        features = jax.vmap(lambda x: jnp.stack(_features(x, eta.mu, eta.tau), axis=-1))(xs)
        logits = jax.vmap(jax.vmap(lambda f: out(jnp.tanh(hidden(f)))[0]))(features)
        return logsumexp(log_e + jax.nn.log_softmax(logits, axis=-1), axis=-1)

    def messages(self, eta: Clusters, observations: Float[Array, " steps"]) -> Messages:
        points = self._log_points(eta, observations)
        left = jnp.cumsum(points[::-1])[::-1]
        return Messages(left[0], jnp.concatenate([left[1:], jnp.zeros_like(left[:1])]))

    def read(self, message: Scalar, state: Int[Array, ""]) -> Scalar:
        return message


class BackwardRecursion(AbstractMessages):
    """A heuristic that sees z_k: ψ_k(m, η) = Σ_m' T(m, m') N(x_{k+1}; η_m') e^{c(m')} ψ_{k+1}(m',
    η), T and c learned.

    With T uniform and c = 0, where it starts, it is the hand-coded mixture; with T = A it is the
    exact p(x_{k+1:K} | z_k, η). c is a network of (x, η_m'), as in `MixtureHeuristic`.
    """

    log_T: Float[Array, "clusters clusters"]
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, num_clusters: int, *, key: Key, width: int = 128):
        key_hidden, key_out = jax.random.split(key)
        self.log_T = jnp.zeros((num_clusters, num_clusters))
        self.hidden = eqx.nn.Linear(5, width, key=key_hidden)
        self.out = _small(eqx.nn.Linear(width, 1, key=key_out))

    def messages(self, eta: Clusters, observations: Float[Array, " steps"]) -> Messages:
        log_e = log_normal(observations[:, None], eta.mu, eta.tau)
        features = jax.vmap(lambda x: jnp.stack(_features(x, eta.mu, eta.tau), axis=-1))(
            observations
        )
        log_e = log_e + jax.vmap(jax.vmap(lambda f: self.out(jnp.tanh(self.hidden(f)))[0]))(
            features
        )
        log_T = jax.nn.log_softmax(self.log_T, axis=-1)

        def back(message, log_e):
            return logsumexp(log_T + log_e + message, axis=1), message

        _, later = jax.lax.scan(back, jnp.zeros_like(log_e[0]), log_e, reverse=True)
        first = logsumexp(log_e[0] + later[0]) - np.log(log_e.shape[1])
        return Messages(first, later)

    def read(self, message: Float[Array, " clusters"], state: Int[Array, ""]) -> Scalar:
        return message[state]


class Series(NamedTuple):
    """An instance: x_{1:K}, and what the encoder has computed of it beforehand (None: it does so
    when asked).
    """

    xs: Float[Array, " steps"]
    seen: Any = None


class HMMProgram(eqx.Module):
    """From one series to its sampler: q(η | x), then one state a level, resampled before every
    move.
    """

    encoder: NeuralStatistics | ExpectationMaximisation
    kernel: ClusterKernel
    heuristic: AbstractMessages
    model: GaussianHMM = GaussianHMM()
    resampling: Resampling = Resampling("systematic", "always")

    def look(self, xs: Float[Array, "instances steps"]) -> Series:
        """Instances with everything computed that does not change in training."""
        if not isinstance(self.encoder, ExpectationMaximisation):
            return Series(xs)
        encoder = self.encoder
        one = jax.jit(lambda x: encoder.look(self.model, x))
        return Series(xs, jax.lax.map(one, xs, batch_size=min(500, xs.shape[0])))

    def __call__(self, series: Series | Float[Array, " steps"]) -> NestedSampler:
        xs, seen = series if isinstance(series, Series) else (series, None)
        path = GlobalStateSpace(self.model, xs, self.heuristic)
        initial = WithoutState(self.encoder(self.model, xs, seen), jnp.zeros((), jnp.int32))
        transition = Transition(NextState(self.kernel))
        return NestedSampler(initial, path, Shared(transition, path.num_steps), self.resampling)


class ClusterRefresh(AbstractRefresh):
    """Random-walk Metropolis on (μ, log τ) of all clusters; `scale` is in units of a cluster's
    posterior standard deviation when the observations are shared out evenly."""

    model: GaussianHMM
    steps: int = eqx.field(static=True, default=2)
    scale: float = eqx.field(static=True, default=0.8)

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
        self, eta: Clusters, z: Latent, memory: Statistics, k: Any, path: GlobalStateSpace
    ) -> Scalar:
        """log γ_k(η, z_{1:k}) in the coordinates (μ, log τ), up to what does not depend on η."""
        squares = memory.spread + memory.number * (memory.mean - eta.mu) ** 2
        log_x = jnp.sum(0.5 * memory.number * jnp.log(eta.tau) - 0.5 * eta.tau * squares)
        return (
            self.model.log_prior(eta)
            + log_x
            + path.log_psi(k, eta, z.state)
            + jnp.sum(jnp.log(eta.tau))
        )

    def move(
        self, key: Key, z: Latent, memory: Statistics, k: Any, path: GlobalStateSpace
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
            change = self.log_gamma(proposal, z, memory, k, path) - self.log_gamma(
                eta, z, memory, k, path
            )
            accept = jnp.log(jax.random.uniform(key_accept)) < change
            eta = jax.tree.map(lambda new, old: jnp.where(accept, new, old), proposal, eta)
            return eta, accept.astype(eta.mu.dtype)

        eta, accepted = jax.lax.scan(step, z.eta, jax.random.split(key, self.steps))
        return eta, jnp.mean(accepted)
