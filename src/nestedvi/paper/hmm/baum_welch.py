"""A proposal q(η | x_{1:K}) around the posterior's modes, which Baum-Welch steps (expectation
maximisation in a hidden Markov model) find from several starts. Not in the paper. It is the first
level of a row's sampler, and refuses to propose states.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.paper.hmm.model import Clusters, GaussianHMM, log_normal_gamma
from nestedvi.paper.hmm.proposals import Head, NormalGammas
from nestedvi.paper.hmm.statistics import Statistics

__all__ = ["ExpectationMaximisation", "Fits"]

_PARAMETERS = ("alpha", "beta", "mu", "nu")


class Fits(NamedTuple):
    """Where Baum-Welch ended, one entry a start: η, the clusters in use, their statistics, and log
    p(x | η).
    """

    eta: Clusters
    used: Any
    statistics: Statistics
    log_x: Any


class ExpectationMaximisation(eqx.Module):
    """q(η | x) around the posterior's modes: assignments by a few Baum-Welch steps from several
    starts, one part a start.

    The steps are a fixed computation. What is learned turns each start's statistics into a
    NormalGamma, and sharpens or flattens the starts' weights, which are estimates of their
    evidence: log p(x, η) − log q_r(η) at the mode where the start ended.
    """

    head: Head
    sharpness: Float[Array, ""]
    num_steps: int = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True)

    def __init__(
        self,
        model: GaussianHMM,
        *,
        key: Key,
        width: int,
        num_steps: int,
        symmetric: bool = True,
    ):
        self.head = Head(width, key=key)
        self.sharpness = jnp.zeros(())
        self.num_steps, self.symmetric = num_steps, symmetric

    def fit(self, model: GaussianHMM, xs: Float[Array, " steps"]) -> Fits:
        """The fixed computation, which can be done once for every series before training."""

        def run_from(mu, used):
            def step(eta, _):
                return _maximise(model, xs, used * model.smooth(eta, xs, used)), None

            eta, _ = jax.lax.scan(step, Clusters(mu, jnp.ones_like(mu)), None, self.num_steps)
            statistics = Statistics.soft(used * model.smooth(eta, xs, used), xs)
            return Fits(eta, used, statistics, model.log_likelihood(eta, xs, used))

        several = jax.vmap(run_from)(*_starts(xs, model.num_clusters))
        # Baum-Welch cannot leave a fit in which one cluster covers two groups and another group is
        # cut in half. Fits without the last cluster cover too much somewhere: each of their
        # clusters is split in turn.
        fewer = [
            i for i, num in enumerate(_sizes(model.num_clusters)) if num == model.num_clusters - 1
        ]
        split = jax.vmap(run_from)(
            *(
                jnp.concatenate(x)
                for x in zip(*(_splits(several.eta, i) for i in fewer), strict=True)
            )
        )
        return jax.tree.map(lambda *x: jnp.concatenate(x), several, split)

    def __call__(
        self, model: GaussianHMM, xs: Float[Array, " steps"], fits: Fits | None = None
    ) -> NormalGammas:
        eta, used, statistics, log_x = self.fit(model, xs) if fits is None else fits
        alpha, beta, mu, nu = jax.vmap(lambda one: self.head(model, one, xs.shape[0]))(statistics)
        log_prior = log_normal_gamma(eta, model.alpha, model.beta, model.mu, model.nu)
        # A cluster without observations keeps its prior, which then costs nothing.
        evidence = log_x + jnp.sum(
            jnp.where(used, log_prior - log_normal_gamma(eta, alpha, beta, mu, nu), 0.0), axis=-1
        )
        # No start is shut out: a mode of little evidence may be the one that the others missed.
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
