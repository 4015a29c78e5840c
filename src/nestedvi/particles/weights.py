"""Weights in log space: normalised weights, effective sample size, log Ẑ and their standard errors,
Pareto k̂.

Functions of log weights act on the last axis. They refuse to know what the weights are of.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import LogWeights, Scalar, Weights

__all__ = ["ess", "khat", "log_Z_hat", "log_Z_hat_stderr", "normalise"]


def normalise(log_w: LogWeights) -> Weights:
    """w̄ = w / Σw. All-zero weights give zeros, not NaN: the caller sees Σw̄ = 0 and says so."""
    top = jnp.max(log_w, axis=-1, keepdims=True)
    w = jnp.exp(log_w - jnp.where(jnp.isfinite(top), top, 0.0))
    total = jnp.sum(w, axis=-1, keepdims=True)
    return w / jnp.where(total > 0, total, 1.0)


def log_Z_hat(log_w: LogWeights) -> Scalar:
    """log Ẑ = log (1/S) Σ w, by a stable logsumexp."""
    return jax.nn.logsumexp(log_w, axis=-1) - np.log(log_w.shape[-1])


def ess(log_w: LogWeights) -> Scalar:
    """(Σw)² / Σw²: between 1 and S, and 0 when every weight is zero."""
    w_bar = normalise(log_w)
    square = jnp.sum(w_bar**2, axis=-1)
    return jnp.where(square > 0, 1.0 / jnp.where(square > 0, square, 1.0), 0.0)


def log_Z_hat_stderr(log_Z_hats: Float[Array, " batches"]) -> tuple[Scalar, Scalar]:
    """log Ẑ from independent batches: the log of the mean Ẑ (unbiased in Z), and its standard error
    by the delta method.
    """
    num = log_Z_hats.shape[0]
    top = jnp.max(log_Z_hats)
    top = jnp.where(jnp.isneginf(top), 0.0, top)
    ratio = jnp.exp(log_Z_hats - top)
    mean = jnp.mean(ratio)
    stderr = jnp.std(ratio, ddof=1) / np.sqrt(num) / mean if num > 1 else jnp.full((), jnp.nan)
    return top + jnp.log(mean), stderr


def khat(log_w) -> float:
    """Pareto shape k̂ of the largest weights (Vehtari et al. 2024): above 0.7 the estimates should
    not be trusted.

    The generalised Pareto is fitted by the profile-likelihood estimator of Zhang and Stephens
    (2009), on the host in float64.
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
    return _fit_pareto_shape(excess)


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
