"""Gaussian mixtures with full covariances from particles, by expectation maximisation, and weights
of densities that are given. On the host, with nothing to compile.
"""

import numpy as np
from jaxtyping import Float

from nestedvi._types import Key
from nestedvi.densities.mixtures import CorrelatedMixture, squares_on_host
from nestedvi.host import logsumexp, softmax
from nestedvi.randomness import generator

__all__ = ["fit_gaussian", "fit_mixture", "stack_mixture"]

Rows = Float[np.ndarray, "data dim"]
# Rounds of expectation maximisation, and of weights; fewer where a round gains less than this in
# mean log density.
_ROUNDS, _WEIGHT_ROUNDS, _GAIN = 60, 100, 1e-4
# So many rows are enough, and so many for each component and dimension.
_ENOUGH, _FOR_EACH = 2000, 40


def fit_gaussian(u: Rows) -> CorrelatedMixture:
    """The Gaussian of the data's mean and covariance."""
    dim = u.shape[1]
    covariance = np.cov(u.T).reshape(dim, dim) + 1e-6 * np.eye(dim)
    return _mixture(u.mean(axis=0)[None], np.linalg.cholesky(covariance)[None], np.zeros(1), u)


def _mixture(means: np.ndarray, roots: np.ndarray, log_weights: np.ndarray, like: Rows):
    return CorrelatedMixture(*(x.astype(like.dtype) for x in (means, roots, log_weights)))


def _spread_out(rng: np.random.Generator, u: Rows, num: int) -> tuple[Rows, np.ndarray]:
    """Centres by k-means++, and every row's squared distance to the nearest."""
    centres = [u[rng.integers(len(u))]]
    nearest = np.sum((u - centres[0]) ** 2, axis=1)
    for _ in range(num - 1):
        chances = nearest + 1e-30
        centres.append(u[rng.choice(len(u), p=chances / chances.sum())])
        nearest = np.minimum(nearest, np.sum((u - centres[-1]) ** 2, axis=1))
    return np.array(centres), nearest


def fit_mixture(key: Key, u: Rows, components: int) -> CorrelatedMixture:
    """A mixture from centres that are spread out; small components borrow from the mean
    covariance.
    """
    given, u = u, np.asarray(u, np.float64)
    # More rows say no more about so few numbers.
    u = u[:: max(1, len(u) // max(_ENOUGH, _FOR_EACH * components * u.shape[1]))]
    num, dim = u.shape
    unit, borrowed = np.eye(dim), 0.1 * (dim + 2)
    means, nearest = _spread_out(generator(key), u, components)
    roots = np.tile(np.sqrt(nearest.mean() / dim + 1e-4) * unit, (components, 1, 1))
    log_weights, before = np.full(components, -np.log(components)), -np.inf
    for _ in range(_ROUNDS):
        squares, log_det = squares_on_host(u, means, roots)
        log_parts = (log_weights - log_det - 0.5 * squares).T
        log_p = logsumexp(log_parts, axis=0)
        if log_p.mean() - before < _GAIN:
            break
        before, share = log_p.mean(), np.exp(log_parts - log_p)
        total = share.sum(axis=1)
        means = share @ u / (total[:, None] + 1e-9)
        # One product of matrices a component; the data are whitened, so that the difference loses
        # nothing.
        scatter = np.stack(
            [
                (part[:, None] * u).T @ u - size * np.outer(mean, mean)
                for part, size, mean in zip(share, total, means, strict=True)
            ]
        )
        mean_scatter = scatter.sum(axis=0) / num + 1e-5 * unit
        covariances = (scatter + borrowed * mean_scatter) / (total[:, None, None] + borrowed)
        roots = np.linalg.cholesky(covariances)
        log_weights = np.log((total + 0.1) / (num + 0.1 * components))
    return _mixture(means, roots, log_weights, np.asarray(given))


def stack_mixture(log_parts: Float[np.ndarray, "data parts"]) -> Float[np.ndarray, " parts"]:
    """Log weights of the mixture of given densities that is likeliest for data none of them was
    fitted to.
    """
    log_parts = np.asarray(log_parts, np.float64)
    log_weights = np.full(log_parts.shape[1], -np.log(log_parts.shape[1]))
    for _ in range(_WEIGHT_ROUNDS):
        log_weights = np.log(softmax(log_parts + log_weights).mean(axis=0) + 1e-300)
    return log_weights
