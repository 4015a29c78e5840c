"""Reweighted wake-sleep for latent-variable models: both wake-phase gradients from one set of self-
normalised weights. It refuses to draw the particles that the weights are of.
"""

import jax.numpy as jnp
from jax.lax import stop_gradient

from nestedvi._types import LogWeights, Scalar
from nestedvi.particles.weights import log_Z_hat, normalise

__all__ = ["wake"]


def wake(log_p: LogWeights, log_q: LogWeights) -> tuple[Scalar, Scalar]:
    """The scalar to differentiate, and log Ẑ = log (1/S) Σ p/q, for S held samples h ~ q(h | x).

    With w̄ ∝ p(x, h)/q(h | x), held, the gradient is −Σ w̄ ∂log p(x, h) for the model (wake phase
    θ) and −Σ w̄ ∂log q(h | x) for the proposal (wake phase φ, the forward KL from the posterior).

    **Arguments:** `log_p`, `log_q`: log p(x, h_s) and log q(h_s | x), evaluated at samples that
    carry no gradient.
    """
    log_w = stop_gradient(log_p - log_q)
    w_bar = normalise(log_w)
    return -jnp.sum(w_bar * (log_p + log_q)), log_Z_hat(log_w)
