"""What the networks of proposals and heuristics have in common: the views of an observation that
they take as input, and how their last layer starts. No density lives here.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["SCALE", "features", "near_zero"]

# Observations spread over about ±100: networks see them, and cluster means, in units of the prior's
# standard deviation.
SCALE = 30.0


def near_zero(layer: eqx.nn.Linear) -> eqx.nn.Linear:
    """A layer that starts near zero, so that what it corrects starts as it is."""

    def zero(x):
        return 0.01 * x

    return eqx.tree_at(lambda l: (l.weight, l.bias), layer, (zero(layer.weight), zero(layer.bias)))


def features(x: Array, mu: Array, tau: Array) -> tuple[Array, ...]:
    """Scaled views of one observation and its clusters; every one is bounded or grows slowly."""
    residual = (x - mu) * jnp.sqrt(tau)
    return (
        jnp.broadcast_to(x / SCALE, mu.shape),
        mu / SCALE,
        jnp.log(tau),
        jnp.tanh(residual / 3),
        jnp.log1p(residual**2) / 5,
    )
