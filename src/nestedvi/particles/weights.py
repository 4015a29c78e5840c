"""Weights in log space: normalised weights, effective sample size, log Ẑ and their standard errors,
Pareto k̂, and what its tail holds beyond the largest weight; indices that are drawn in proportion
to weights, and how many draws they leave.

Functions of log weights act on the last axis. Arrays of JAX are computed with by JAX; arrays of
NumPy by NumPy, for loops on the host that have nothing to compile.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestedvi._types import LogWeights, Scalar, Uniforms, Weights
from nestedvi.host import logsumexp

__all__ = [
    "beyond_largest",
    "ess",
    "inverse_cdf",
    "khat",
    "library_of",
    "log_Z_hat",
    "log_Z_hat_stderr",
    "next_beta",
    "normalise",
    "normalise_cut",
    "num_families",
    "relative_variance",
    "search_sorted",
    "systematic",
    "two_groups",
]


# The largest of n draws varies: a third of its usual size is n^-.15 for a thousand draws.
_MARGIN = 0.15
# A shape of one has no mean.
_HEAVIEST = 0.9
# Of two groups the lower must have the first share, or it is a tail; the higher may be as small as
# the second, and so many.
_LOWER_SHARE, _HIGHER_SHARE, _FEWEST = 0.05, 0.005, 3


def library_of(x: Any) -> Any:
    """NumPy for its own arrays, else JAX's version of it."""
    return np if isinstance(x, np.ndarray) else jnp


def normalise(log_w: LogWeights | np.ndarray) -> Any:
    """w̄ = w / Σw. All-zero weights give zeros, not NaN: the caller sees Σw̄ = 0 and says so."""
    xp = library_of(log_w)
    top = xp.max(log_w, axis=-1, keepdims=True)
    w = xp.exp(log_w - xp.where(xp.isfinite(top), top, 0.0))
    total = xp.sum(w, axis=-1, keepdims=True)
    return w / xp.where(total > 0, total, 1.0)


def normalise_cut(log_w: LogWeights | np.ndarray) -> Any:
    """w̄ of weights cut at √S times their mean, for a fit: it should not follow single draws."""
    w_bar = library_of(log_w).minimum(normalise(log_w), log_w.shape[-1] ** -0.5)
    return w_bar / w_bar.sum(axis=-1, keepdims=True)


def log_Z_hat(log_w: LogWeights | np.ndarray) -> Any:
    """log Ẑ = log (1/S) Σ w, by a stable logsumexp.

    Args:
        log_w: log weights, shape (particles,); of JAX or NumPy.

    Example:
        ```python
        nvi.log_Z_hat(jnp.log(jnp.array([1.0, 2.0, 3.0])))  # log 2
        ```
    """
    log_sum: Any = jax.nn.logsumexp if library_of(log_w) is jnp else logsumexp
    return log_sum(log_w, axis=-1) - np.log(log_w.shape[-1])


def ess(log_w: LogWeights | np.ndarray) -> Any:
    """(Σw)² / Σw²: between 1 and S, and 0 when every weight is zero.

    Args:
        log_w: log weights, shape (particles,); of JAX or NumPy.

    Example:
        ```python
        nvi.ess(jnp.log(jnp.array([0.5, 0.25, 0.25])))  # 8/3
        ```
    """
    xp, w_bar = library_of(log_w), normalise(log_w)
    square = xp.sum(w_bar**2, axis=-1)
    return xp.where(square > 0, 1.0 / xp.where(square > 0, square, 1.0), 0.0)


def next_beta(beta: float, log_ratio: np.ndarray, share: float) -> float:
    """The largest β' ≤ 1 whose increments (β' − β) log_ratio keep an ESS of `share` of the
    particles, by bisection.
    """
    wanted = share * len(log_ratio)
    if ess((1 - beta) * log_ratio) >= wanted:
        return 1.0
    low, high = beta, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if ess((middle - beta) * log_ratio) >= wanted:
            low = middle
        else:
            high = middle
    return max(low, beta + 1e-6)


def log_Z_hat_stderr(log_Z_hats: Float[Array, " batches"] | np.ndarray) -> tuple[Any, Any]:
    """log Ẑ from independent batches: the log of the mean Ẑ (unbiased in Z), and its standard error
    by the delta method.
    """
    num, xp = log_Z_hats.shape[0], library_of(log_Z_hats)
    top = xp.max(log_Z_hats)
    top = xp.where(xp.isneginf(top), 0.0, top)
    ratio = xp.exp(log_Z_hats - top)
    mean = xp.mean(ratio)
    stderr = xp.std(ratio, ddof=1) / np.sqrt(num) / mean if num > 1 else xp.full((), np.nan)
    return top + xp.log(mean), stderr


def two_groups(log_w: Float[np.ndarray, " particles"]) -> tuple[float, float, float]:
    """The gap between the means of two groups in nats and in the sum of their standard deviations,
    and the share of the higher one, where particles are split so that they vary least within
    groups.
    """
    x = np.sort(np.asarray(log_w, np.float64))
    x = x[np.abs(x) < 1e29]
    num = len(x)
    lower, higher = (int(np.ceil(share * num)) for share in (_LOWER_SHARE, _HIGHER_SHARE))
    split = np.arange(max(lower, _FEWEST), num - max(higher, _FEWEST) + 1)
    if not len(split):
        return 0.0, 0.0, 0.0
    # Around the mean, so that squares lose no digits.
    x = x - x.mean()
    sums, squares = np.cumsum(x)[split - 1], np.cumsum(x**2)[split - 1]
    low, high = sums / split, -sums / (num - split)
    var_low = np.maximum(squares / split - low**2, 0.0)
    var_high = np.maximum((np.sum(x**2) - squares) / (num - split) - high**2, 0.0)
    at = int(np.argmin(split * var_low + (num - split) * var_high))
    gap, spread = high[at] - low[at], np.sqrt(var_low[at]) + np.sqrt(var_high[at])
    return float(gap), float(gap / max(spread, 1e-6)), float(1 - split[at] / num)


def khat(log_w: LogWeights | np.ndarray) -> float:
    """Pareto shape k̂ of the largest weights (Vehtari et al. 2024): above 0.7 the estimates should
    not be trusted.

    The generalised Pareto is fitted by the profile-likelihood estimator of Zhang and Stephens
    (2009), on the host in float64. The largest of n weights with a tail of shape k is about n^k
    times their mean: where it is far smaller there is no such tail, whatever the shape of the top
    is, and k̂ is not above what the largest weight allows.

    Args:
        log_w: log weights, shape (particles,).

    Example:
        ```python
        nvi.khat(np.random.default_rng(0).normal(size=1000))
        ```
    """
    log_w = np.asarray(log_w, dtype=np.float64)
    log_w = log_w[np.isfinite(log_w)]
    num = log_w.size
    tail = min(int(np.ceil(0.2 * num)), int(np.ceil(3 * np.sqrt(num))))
    if tail < 5:
        return float("nan")
    largest = np.sort(log_w)[-tail - 1 :]
    spread = largest[-1] - largest[0]
    if spread < 0.01 or (spread < 1 and len(np.unique(np.round(largest, 4))) < 5):
        # The largest are all but equal, or those of a few batches with one weight each: there is no
        # tail.
        return float("-inf")
    weights = np.exp(largest - largest[-1])
    excess = np.maximum(weights[1:] - weights[0], np.finfo(np.float64).tiny)
    # log of the largest weight over the mean one, in powers of n.
    reach = -float(log_Z_hat(log_w - largest[-1])) / np.log(num)
    return min(_fit_pareto_shape(excess), reach + _MARGIN)


def _fit_pareto_shape(excess) -> float:
    num = excess.size
    grid = 30 + int(np.sqrt(num))
    quartile = excess[int(num / 4 + 0.5) - 1]
    theta = 1 / excess[-1] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quartile)
    shape = np.mean(np.log1p(-theta[:, None] * excess), axis=1)
    profile = num * (np.log(-theta / shape) - shape - 1)
    with np.errstate(over="ignore"):
        weight = 1 / np.sum(np.exp(profile - profile[:, None]), axis=1)
    best = np.sum(theta * weight)
    raw = np.mean(np.log1p(-best * excess))
    # A weak prior at 0.5, worth ten observations, steadies small tails.
    return float((num * raw + 10 * 0.5) / (num + 10))


def search_sorted(ends: Weights, points: Uniforms) -> Any:
    """searchsorted from the right. Comparing everything with everything is one fused loop, and
    faster until S² hurts.
    """
    if library_of(ends) is np:
        return np.searchsorted(ends, points, side="right")
    method = "compare_all" if ends.shape[0] <= 512 else "sort"
    return jnp.searchsorted(ends, points, side="right", method=method)


def inverse_cdf(points: Uniforms, w_bar: Weights | np.ndarray) -> Any:
    """For each point of [0, 1) the index where the cumulative weights pass it."""
    xp = library_of(w_bar)
    cdf = xp.cumsum(w_bar)
    # Rounding may leave the last entry under 1, and a point above it must not fall on a particle of
    # weight zero.
    picks = search_sorted(cdf / cdf[-1], points)
    last = w_bar.shape[0] - 1 - xp.argmax(w_bar[::-1] > 0)
    return xp.minimum(picks, last)


def systematic(u: Scalar | float, w_bar: Weights | np.ndarray, num: int) -> Any:
    """`num` indices (any number) by a comb of equally spaced points that one uniform shifts; they
    come in order. Weights of NumPy give indices of NumPy.
    """
    return inverse_cdf((library_of(w_bar).arange(num) + u) / num, w_bar)


def beyond_largest(log_w: LogWeights | np.ndarray) -> float:
    """The share of Ẑ that weights larger than any of these would add, if the tail has the shape k̂.

    One draw in as many as there are is beyond the largest weight, and then of the size
    w_max / (1 − k̂). Light tails have next to nothing there, and equal weights nothing. Where a
    proposal covers a part of the target badly this is more than the spread of the weights says.
    """
    shape = khat(log_w)
    if not np.isfinite(shape):
        return 0.0
    return float(np.max(normalise(log_w))) / (1 - float(np.clip(shape, 0.0, _HEAVIEST)))


def relative_variance(log_w: LogWeights | np.ndarray) -> float:
    """Of the mean of some weights, over its square; of all weights where there is none."""
    return 1 / max(float(ess(log_w)), 1.0) - 1 / np.shape(log_w)[0]


def num_families(
    origin: Int[np.ndarray, " particles"], batches: int
) -> Int[np.ndarray, " batches"]:
    """How many first draws the particles of each batch descend from, batch after batch; on the
    host.
    """
    return np.array([len(np.unique(row)) for row in origin.reshape(batches, -1)])
