"""The continuous Bernoulli, a density on [0, 1] for grey values: p(x; η) ∝ e^{ηx} with η the logit
of its parameter.

With h = η/2 the normaliser is e^h sinh(h)/h, so that

    log p(x; η) = (x − ½) η − log(sinh(h)/h),

which is even in η and has no singularity but the removable one at η = 0 (parameter ½), where a
series takes over. It refuses to know what makes the logits.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Key

__all__ = [
    "LOGIT_LIMIT",
    "continuous_bernoulli_log_prob",
    "continuous_bernoulli_mean",
    "continuous_bernoulli_sample",
]

# The logit of 1 − 2⁻²³, what a float32 clamp of the probability amounts to. At x = 0 or 1 exactly
# the density grows without bound in the logit, and images have many such pixels: without a limit a
# decoder spends its training on them.
LOGIT_LIMIT = 15.94

# Below this |h| the closed form cancels; there the series is good to 1e-10.
_SMALL = 0.5


def continuous_bernoulli_log_prob(
    x: Float[Array, " *shape"], logits: Float[Array, " *shape"], limit: float = LOGIT_LIMIT
) -> Float[Array, " *shape"]:
    """log p(x; η) elementwise, for logits cut at ±`limit` (beyond it they get no gradient)."""
    logits = jnp.clip(logits, -limit, limit)
    return (x - 0.5) * logits - _log_sinhc(0.5 * logits)


def continuous_bernoulli_mean(
    logits: Float[Array, " *shape"], limit: float = LOGIT_LIMIT
) -> Float[Array, " *shape"]:
    """E[x] = ½ + ½ (coth h − 1/h), elementwise."""
    h = 0.5 * jnp.clip(logits, -limit, limit)
    small = jnp.abs(h) < _SMALL
    square = jnp.where(small, h * h, 0.0)
    series = h * (
        1 / 3 - square * (1 / 45 - square * (2 / 945 - square * (1 / 4725 - square * (2 / 93555))))
    )
    safe = jnp.where(small, 1.0, h)
    return 0.5 + 0.5 * jnp.where(small, series, 1.0 / jnp.tanh(safe) - 1.0 / safe)


def continuous_bernoulli_sample(
    key: Key, logits: Float[Array, " *shape"], limit: float = LOGIT_LIMIT
) -> Float[Array, " *shape"]:
    """Draws by the inverse cdf, x = log(1 + u (e^η − 1))/η, elementwise; they carry the gradient of
    the logits.
    """
    logits = jnp.clip(logits, -limit, limit)
    u = jax.random.uniform(key, jnp.shape(logits), jnp.result_type(logits))
    # For η ≤ 0 nothing overflows; a positive η is the mirror image.
    eta = -jnp.abs(logits)
    flat = eta > -1e-3
    safe = jnp.where(flat, -1.0, eta)
    # To first order in η around the uniform; the next term is below float32's rounding.
    x = jnp.where(flat, u + 0.5 * eta * u * (1 - u), jnp.log1p(u * jnp.expm1(safe)) / safe)
    return jnp.where(logits > 0, 1.0 - x, x)


def _log_sinhc(h: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
    """log(sinh(h)/h), elementwise."""
    small = jnp.abs(h) < _SMALL
    # Both branches are differentiated, so each gets arguments at which it is finite.
    square = jnp.where(small, h * h, 0.0)
    series = square * (
        1 / 6 - square * (1 / 180 - square * (1 / 2835 - square * (1 / 37800 - square / 467775)))
    )
    size = jnp.where(small, 1.0, jnp.abs(h))
    closed = size - jnp.log(2.0) + jnp.log1p(-jnp.exp(-2.0 * size)) - jnp.log(size)
    return jnp.where(small, series, closed)
