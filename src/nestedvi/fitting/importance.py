"""A base for importance sampling, fitted to its own weighted draws: population Monte Carlo.

It starts from the shape of the density at its modes. Each round draws from the base, weights the
draws, and fits means, covariances and weights of the components to them. Nothing here knows where
the modes came from.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.special

from nestedvi._types import Key
from nestedvi.densities.base import AbstractDensity
from nestedvi.densities.student import StudentMixture
from nestedvi.fitting.draws import draw_weighted
from nestedvi.fitting.modes import Modes
from nestedvi.particles.weights import ess, khat, log_Z_hat, normalise
from nestedvi.randomness import split_on_host

__all__ = ["Trial", "base_at_modes", "fit_base", "refit"]

# A mode whose share of the mass is below e to minus this is left out.
_NEGLIGIBLE = 12.0
# Draws that are worth this many a dimension are enough for a covariance of their own.
_ENOUGH = 8.0
_ROUNDS = 6


class Trial(NamedTuple):
    """A base, and what importance sampling from it gave: log Ẑ, the ESS as a share of the draws,
    k̂, and the number of draws in all rounds.
    """

    base: StudentMixture
    log_Z_hat: float
    share: float
    khat: float
    draws: int


def base_at_modes(modes: Modes, dtype) -> StudentMixture:
    """A component a mode, weighted by Laplace's approximation of its mass."""
    log_mass = modes.log_mass - modes.log_mass.max()
    kept = log_mass > -_NEGLIGIBLE
    return StudentMixture(
        jnp.asarray(modes.z[kept], dtype),
        jnp.asarray(modes.roots[kept], dtype),
        jnp.asarray(log_mass[kept], dtype),
    )


def _log_components(base: StudentMixture, z: np.ndarray) -> np.ndarray:
    """log π_m N(z; μ_m, Σ_m), for every draw and component."""
    means, roots = np.asarray(base.means, np.float64), np.asarray(base.roots, np.float64)
    log_weights = scipy.special.log_softmax(np.asarray(base.log_weights, np.float64))
    columns = []
    for mean, root, log_weight in zip(means, roots, log_weights, strict=True):
        away = scipy.linalg.solve_triangular(root, (z - mean).T, lower=True)
        log_det = np.log(np.abs(np.diag(root))).sum()
        columns.append(log_weight - log_det - 0.5 * np.sum(away**2, axis=0))
    return np.stack(columns, axis=1)


def refit(base: StudentMixture, z: np.ndarray, log_ratio: np.ndarray) -> StudentMixture:
    """One step of expectation maximisation on weighted draws.

    A component that few draws stand for keeps its shape; covariances shrink towards what they were
    by as much as the draws are too few for the dimension.
    """
    # The largest weights are cut at the mean times √n: a fit must not follow single draws.
    w_bar = normalise(log_ratio)
    w_bar = np.minimum(w_bar, len(w_bar) ** -0.5)
    w_bar = w_bar / w_bar.sum()
    share = scipy.special.softmax(_log_components(base, z), axis=1) * w_bar[:, None]
    dim, dtype = z.shape[1], base.means.dtype
    means, roots = np.array(base.means, np.float64), np.array(base.roots, np.float64)
    for m, part in enumerate(share.T):
        total = part.sum()
        size = total**2 / max(np.sum(part**2), 1e-300)
        if size < 2 * dim:
            continue
        part = part / total
        mean = part @ z
        covariance = ((z - mean) * part[:, None]).T @ (z - mean)
        trust = min(1.0, size / (_ENOUGH * dim))
        covariance = trust * covariance + (1 - trust) * roots[m] @ roots[m].T
        means[m], roots[m] = mean, np.linalg.cholesky(covariance + 1e-10 * np.eye(dim))
    log_weights = np.log(share.sum(axis=0) + 1e-4 / len(share.T))
    return StudentMixture(*(jnp.asarray(x, dtype) for x in (means, roots, log_weights)))


def fit_base(
    key: Key, base: StudentMixture, target: AbstractDensity, *, num: int, good: float
) -> Trial:
    """Rounds of `num` draws until importance sampling keeps a share `good` of them, or a round
    brings little; the best base that was tried.
    """
    trials: list[Trial] = []
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    for k in split_on_host(key, _ROUNDS):
        z, log_ratio = (np.asarray(x, np.float64) for x in draw_weighted(k, base, target, num))
        seen.append((z, log_ratio))
        share = float(ess(log_ratio)) / num
        draws = (len(trials) + 1) * num
        trials.append(Trial(base, float(log_Z_hat(log_ratio)), share, khat(log_ratio), draws))
        # The first refit may be as noisy as its few effective draws: judge from the second on.
        if share > good or (len(trials) > 2 and share < 1.1 * trials[-2].share):
            break
        # Draws of every round are properly weighted; those of the first bases are worth little.
        base = refit(base, *(np.concatenate(x) for x in zip(*seen[-3:], strict=True)))
    best = max(trials, key=lambda trial: trial.share)
    return best._replace(draws=draws)
