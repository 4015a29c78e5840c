"""Gaussian mixtures with full covariances, and the shape of the bulk, from particles, by
expectation maximisation.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.gaussian import CorrelatedMixture
from nestedvi.fitting.directions import Data, whiten

__all__ = ["bulk_root", "fit_gaussian", "fit_mixture", "stack_mixture"]

Rows = Float[Array, "data dim"]
_ENOUGH = 500


def fit_gaussian(u: Rows) -> CorrelatedMixture:
    """The Gaussian of the data's mean and covariance."""
    dim = u.shape[1]
    covariance = jnp.cov(u.T).reshape(dim, dim) + 1e-6 * jnp.eye(dim, dtype=u.dtype)
    return CorrelatedMixture(
        jnp.mean(u, axis=0)[None], jnp.linalg.cholesky(covariance)[None], jnp.zeros(1)
    )


def bulk_root(z: Data, freedom: float = 3.0, iterations: int = 8) -> np.ndarray:
    """A root of the scatter matrix of the likeliest t distribution: the covariance's shape where
    most particles are; on the host, in double precision.

    The few that are far out count less, as a funnel's mouth should for steps that have to fit its
    middle as well. Of fewer than ten particles a dimension it is in part the covariance's root.
    """
    _, root, u = whiten(z)
    dim = u.shape[1]
    # More particles say no more about a shape that is only a metric.
    u = u[:: max(1, len(u) // max(_ENOUGH, 10 * dim))]
    num, unit = len(u), np.eye(dim)
    centre, scatter = np.zeros(dim), unit
    for _ in range(iterations):
        precision = np.linalg.inv(scatter + 1e-6 * unit)
        square = np.einsum("ij,ij->i", (u - centre) @ precision, u - centre)
        weight = (freedom + dim) / (freedom + square)
        centre = weight @ u / weight.sum()
        scatter = (weight[:, None] * (u - centre)).T @ (u - centre) / num
    trust = min(1.0, num / (10 * dim))
    return root @ np.linalg.cholesky(trust * scatter + (1 - trust + 1e-6) * unit)


@eqx.filter_jit
def fit_mixture(key: Key, u: Rows, components: int, iterations: int = 60) -> CorrelatedMixture:
    """A mixture from centres that are spread out (k-means++); small components borrow from the mean
    covariance.
    """
    num, dim = u.shape
    key_first, key_rest = jax.random.split(key)

    def choose(state, inputs):
        nearest, centres = state
        i, key = inputs
        centre = u[jax.random.categorical(key, jnp.log(nearest + 1e-30))]
        return (
            jnp.minimum(nearest, jnp.sum((u - centre) ** 2, axis=1)),
            centres.at[i].set(centre),
        ), None

    first = u[jax.random.randint(key_first, (), 0, num)]
    start = (
        jnp.sum((u - first) ** 2, axis=1),
        jnp.zeros((components, dim), u.dtype).at[0].set(first),
    )
    rest = jnp.arange(1, components), jax.random.split(key_rest, components - 1)
    (nearest, centres), _ = jax.lax.scan(choose, start, rest)
    eye = jnp.eye(dim, dtype=u.dtype)
    borrowed = 0.1 * (dim + 2)

    def mixture(means, covariances, log_weights):
        return CorrelatedMixture(means, jnp.linalg.cholesky(covariances), log_weights)

    def update(_, state):
        share = jax.nn.softmax(jax.vmap(mixture(*state).log_parts)(u), axis=1)
        total = jnp.sum(share, axis=0)
        means = share.T @ u / (total[:, None] + 1e-9)
        # One matrix product a component; the data are whitened, so that the difference loses
        # nothing.
        scatter = jax.vmap(lambda w, t, m: (w[:, None] * u).T @ u - t * jnp.outer(m, m))(
            share.T, total, means
        )
        mean_scatter = jnp.sum(scatter, axis=0) / num + 1e-5 * eye
        covariances = (scatter + borrowed * mean_scatter) / (total[:, None, None] + borrowed)
        return means, covariances, jnp.log((total + 0.1) / (num + 0.1 * components))

    width = jnp.mean(nearest) / dim + 1e-4
    start_of_em = (
        centres,
        jnp.broadcast_to(width * eye, (components, dim, dim)),
        jnp.zeros(components),
    )
    return mixture(*jax.lax.fori_loop(0, iterations, update, start_of_em))


def stack_mixture(
    log_parts: Float[Array, "data parts"], iterations: int = 100
) -> Float[Array, " parts"]:
    """Log weights of the mixture of given densities that is likeliest for data none of them was
    fitted to.
    """

    def update(_, log_weights):
        return jax.nn.log_softmax(
            jax.nn.logsumexp(jax.nn.log_softmax(log_parts + log_weights, axis=1), axis=0)
        )

    return jax.lax.fori_loop(0, iterations, update, jnp.zeros(log_parts.shape[1], log_parts.dtype))
