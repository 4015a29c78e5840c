"""Gaussian mixtures with full covariances from particles, by expectation maximisation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.compilation import compiled_soon
from nestedvi.densities.mixtures import CorrelatedMixture

__all__ = ["fit_gaussian", "fit_mixture", "stack_mixture"]

Rows = Float[Array, "data dim"]


def fit_gaussian(u: Rows) -> CorrelatedMixture:
    """The Gaussian of the data's mean and covariance."""
    dim = u.shape[1]
    covariance = jnp.cov(u.T).reshape(dim, dim) + 1e-6 * jnp.eye(dim, dtype=u.dtype)
    return CorrelatedMixture(
        jnp.mean(u, axis=0)[None], jnp.linalg.cholesky(covariance)[None], jnp.zeros(1)
    )


@compiled_soon
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
