"""Exact quantities of two-dimensional paths by numerical integration on a grid. It draws no
sample.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestedvi.paths.base import AbstractFixedSupportPath

__all__ = ["neighbour_kl"]


def neighbour_kl(
    path: AbstractFixedSupportPath, *, limit: float, points: int = 400
) -> Float[np.ndarray, " moves"]:
    """KL(π_{k-1} ‖ π_k) for k = 2 … K, integrated over the square [-limit, limit]²."""
    grid = jnp.linspace(-limit, limit, points)
    z = jnp.stack(jnp.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    stats = jax.vmap(path.stats)(z)
    log_gamma = jax.vmap(lambda theta: jax.vmap(lambda s: path.log_density(theta, s))(stats))(
        path.thetas()
    )
    # The cell area cancels in normalised grid weights.
    log_pi = log_gamma - jax.nn.logsumexp(log_gamma, axis=1, keepdims=True)
    return np.asarray(jnp.sum(jnp.exp(log_pi[:-1]) * (log_pi[:-1] - log_pi[1:]), axis=1))
