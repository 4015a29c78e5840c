"""log Z by bridge sampling (Meng and Wong 1996) from draws of the posterior: a second way that
shares nothing with the library's samplers. It draws no posterior itself.

Half of the draws fit a proposal g: a Gaussian, in coordinates that a power transformation (Yeo and
Johnson 2000) made as symmetric as it can. With the other half and as many draws of g,

    r ← mean_g[ l / (s_1 l + s_2 r) ] / mean_π[ 1 / (s_1 l + s_2 r) ],    l = γ / g,

has the fixed point r = Z, whatever the shares s_1 + s_2 = 1 are.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpyro.diagnostics import effective_sample_size
from scipy import special, stats

from nestedvi.bench.warp import fit_warp

__all__ = ["Bridge", "bridge_sampling"]

_ITERATIONS, _CLOSE = 1000, 1e-10


class Bridge(NamedTuple):
    """log Z, its standard error (that of Frühwirth-Schnatter 2004, which counts draws of a chain
    for what they are worth), what the chains' draws were worth, and how many iterations it took.
    """

    log_Z: float
    stderr: float
    ess: float
    iterations: int


def bridge_sampling(
    rng: np.random.Generator,
    log_gamma: Callable[[np.ndarray], np.ndarray],
    chains: np.ndarray,
) -> Bridge:
    """log Z of the density that `chains` (chains, draws, dim) were drawn from; `log_gamma` scores
    the rows of a matrix.

    The first half of every chain fits the proposal, the second half estimates.
    """
    num_chains, num, dim = chains.shape
    if num < 4 or num_chains * (num // 2) <= dim:
        raise ValueError(
            f"A proposal in {dim} dimensions needs more draws; got {num_chains} chains of {num}."
        )
    to_fit, kept = chains[:, : num // 2].reshape(-1, dim), chains[:, num // 2 :]
    warp = fit_warp(to_fit)
    warped = warp.forward(to_fit)
    proposal = stats.multivariate_normal(
        warped.mean(axis=0), np.atleast_2d(np.cov(warped.T)), seed=rng
    )
    drawn = warp.inverse(np.reshape(proposal.rvs(kept.shape[0] * kept.shape[1]), (-1, dim)))

    def log_l(x: np.ndarray) -> np.ndarray:
        log_g = proposal.logpdf(warp.forward(x)) + warp.log_det(x)
        return np.asarray(log_gamma(x), dtype=float) - log_g

    log_l1, log_l2 = log_l(kept.reshape(-1, dim)), log_l(drawn)
    if not np.isfinite(log_l1).all():
        raise ValueError(
            f"{np.sum(~np.isfinite(log_l1))} draws of the chains have no finite log density: they"
            " are draws of another density."
        )
    # Draws of g where the density is zero or undefined count with weight zero.
    log_l2 = np.where(np.isnan(log_l2), -np.inf, log_l2)
    worth = min(float(effective_sample_size(log_l1.reshape(kept.shape[:2]))), len(log_l1))
    log_s1, log_s2 = np.log([worth, len(log_l2)]) - np.log(worth + len(log_l2))
    log_r, moved, iterations = float(np.median(log_l1)), np.inf, 0
    while moved > _CLOSE and iterations < _ITERATIONS:
        top = log_l2 - np.logaddexp(log_s1 + log_l2, log_s2 + log_r)
        bottom = -np.logaddexp(log_s1 + log_l1, log_s2 + log_r)
        new = _log_mean(top) - _log_mean(bottom)
        moved, log_r, iterations = abs(new - log_r), new, iterations + 1
    if not moved <= _CLOSE:
        raise ArithmeticError(
            f"Bridge sampling did not converge in {_ITERATIONS} iterations: the Gaussian and the"
            " chains hardly overlap. More draws fit a better Gaussian."
        )
    stderr, ess = _stderr(log_l1.reshape(kept.shape[:2]), log_l2, log_r, log_s1, log_s2)
    return Bridge(log_r, stderr, ess, iterations)


def _log_mean(log_x: np.ndarray) -> float:
    return float(special.logsumexp(log_x) - np.log(len(log_x)))


def _stderr(
    log_l1: np.ndarray, log_l2: np.ndarray, log_r: float, log_s1: float, log_s2: float
) -> tuple[float, float]:
    """The relative error of Ẑ: that of both means, the first with autocorrelated terms; and what
    those are worth.
    """
    # With π = γ / Z: π / (s_1 π + s_2 g) under g, and g / (s_1 π + s_2 g) under π.
    f1 = np.exp(-np.logaddexp(log_s1 + log_l1 - log_r, log_s2))
    f2 = np.exp(log_l2 - log_r - np.logaddexp(log_s1 + log_l2 - log_r, log_s2))
    worth = min(float(effective_sample_size(f1)), f1.size)
    relative = np.var(f2) / np.mean(f2) ** 2 / len(f2) + np.var(f1) / np.mean(f1) ** 2 / worth
    return float(np.sqrt(relative)), worth
