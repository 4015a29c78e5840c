"""The gradient of D_f(π̌_k ‖ π̂_k) as the gradient of one scalar, for every parameter at once.

With l = log ṽ_k, f = F(l), g = F'(l), incoming weights w̄_{k-1} and outgoing weights w̄_k, the
surrogate is

    Σ w̄_{k-1} g (log γ_k + log r_{k-1} − log q_k)        pathwise φ̂, direct φ̂, φ̌, first term of θ_k
    − Σ w̄_{k-1} g · Σ w̄_k log γ_k(z_k held)               second term of θ_k (its normaliser Z_k)
    + Σ w̄_{k-1} (f − g − E[f − g]) log γ_{k-1}             θ_{k-1}: Cov_π̂[f − g, ∂log γ_{k-1}]
    + Σ w̄_{k-1} (f − baseline) log q̃_k                     score function φ̂

with every coefficient held constant. Where z_k is not reparameterised, log q̃ = log q and the
coefficients of ∂log q_k add up to f − g, the table's score-function row. Its value means nothing;
the estimate of the divergence is reported beside it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from nestedvi._types import LogWeights, Scalar, Weights
from nestedvi.divergences.f import AbstractDivergence
from nestedvi.particles.weights import normalise
from nestedvi.sampler.level import Terms

__all__ = ["Coefficients", "coefficients", "surrogate"]


class Coefficients(NamedTuple):
    """What multiplies the gradient of each factor, one number a particle, and the divergence's
    estimate.
    """

    direct: Weights
    pathwise: Weights
    normaliser: Weights
    gamma_prev: Weights
    score: Weights
    divergence: Scalar


def _leave_one_out(values: LogWeights, w_bar: Weights) -> LogWeights:
    """For each particle the weighted mean over the others, for a baseline.

    In reverse KL the estimated log normaliser is the same constant in all values and drops out of
    their differences: the score term is then unbiased. In other divergences f it is inside f, and a
    bias of order 1/S stays.
    """
    others = 1 - w_bar
    safe = jnp.where(others > 0, others, 1.0)
    return jnp.where(others > 0, (_dot(w_bar, values) - w_bar * values) / safe, 0.0)


def _dot(c: Weights, x: LogWeights) -> Scalar:
    """Σ c x where a zero coefficient silences −inf and its derivative."""
    used = c != 0
    return jnp.sum(jnp.where(used, c * jnp.where(used, x, 0.0), 0.0))


def coefficients(
    divergence: AbstractDivergence,
    log_v: LogWeights,
    log_w_in: LogWeights,
    *,
    baseline: bool,
    hold_q: bool,
) -> Coefficients:
    """The coefficients of the surrogate from log v_k and the incoming log weights; no gradient
    passes through here.
    """
    w_in = normalise(log_w_in)
    alive = w_in > 0
    log_v = jnp.where(alive, log_v, 0.0)
    log_w_out = jnp.where(alive, jnp.where(alive, log_w_in, 0.0) + log_v, -jnp.inf)
    # Z_k / Z_{k-1} ≈ Σ w̄_{k-1} v_k
    log_ratio = jax.nn.logsumexp(jnp.where(alive, log_v, -jnp.inf), b=w_in)
    l = log_v - log_ratio
    f, g = jax.vmap(divergence.value)(l), divergence.slope(l)

    def silent(x):
        return jnp.where(alive, x, 0.0)

    f, g = silent(f), silent(g)
    # A live particle that γ_k excludes makes a reverse KL infinite. That is reported; the terms
    # that f multiplies are taken over the others, so that targets with bounded support can be
    # learned.
    countable = jnp.isfinite(f)
    w_f = w_in * countable
    w_f = w_f / jnp.where(jnp.sum(w_f) > 0, jnp.sum(w_f), 1.0)
    f_here = jnp.where(countable, f, 0.0)
    score_signal = f_here if hold_q else f_here - g
    control = _leave_one_out(score_signal, w_f) if baseline else 0.0
    return Coefficients(
        direct=w_in * g,
        pathwise=w_in * silent(divergence.landing_slope(l)),
        normaliser=-jnp.sum(w_in * g) * normalise(log_w_out),
        gamma_prev=w_f * (f_here - g - jnp.sum(w_f * (f_here - g))),
        score=w_f * (f_here - control),
        divergence=jnp.sum(w_in * f),
    )


def surrogate(
    divergence: AbstractDivergence,
    terms: Terms,
    log_w_in: LogWeights,
    *,
    baseline: bool = True,
    hold_q: bool = False,
) -> tuple[Scalar, Scalar]:
    """The scalar to differentiate at one level, and the estimate of its divergence (never the same
    number).
    """
    # Equation by equation in the module's text: coefficients are expectations' integrands, never
    # differentiated.
    c = stop_gradient(
        coefficients(
            divergence,
            stop_gradient(terms.log_v),
            stop_gradient(log_w_in),
            baseline=baseline,
            hold_q=hold_q,
        )
    )
    total = _dot(c.direct, terms.log_gamma + terms.log_r - terms.log_q)
    total = total + _dot(c.normaliser, terms.log_gamma_at)
    total = total + _dot(c.gamma_prev, terms.log_gamma_prev)
    total = total + _dot(c.score, terms.log_q_score)
    if terms.log_v_pathwise is not None:
        total = total + _dot(c.pathwise, terms.log_v_pathwise)
    return total, c.divergence
