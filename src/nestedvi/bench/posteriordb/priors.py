"""Priors that Stan programs write by declaring a support: flat ones, and normals on an ordered
pair. Nothing else is a special case.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from numpyro import distributions as dist
from numpyro.distributions import constraints
from scipy import integrate, stats

from nestedvi._types import Key

__all__ = ["OrderedNormal", "flat"]


def flat(support: constraints.Constraint, *shape: int) -> dist.Distribution:
    """The improper prior of a parameter that a Stan program declares and does not sample."""
    return dist.ImproperUniform(support, (), shape)


class OrderedNormal(dist.Distribution):
    """Two normals under the condition x_1 < x_2, and 0 < x_1 where `positive`: proper, with its
    normaliser by quadrature.
    """

    pytree_data_fields = ("_loc", "_scale", "_log_mass")
    pytree_aux_fields = ("_positive",)
    # Of so many pairs at least one is ordered, but for a chance far below rounding.
    _TRIES = 64

    def __init__(self, loc: ArrayLike, scale: ArrayLike, *, positive: bool = False):
        loc, scale = np.broadcast_arrays(np.asarray(loc, float), np.asarray(scale, float))
        self._loc, self._scale, self._positive = loc, scale, positive
        self._log_mass = float(np.log(_ordered_mass(loc, scale, 0.0 if positive else -np.inf)))
        super().__init__(batch_shape=(), event_shape=(2,))

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.positive_ordered_vector if self._positive else constraints.ordered_vector

    def sample(self, key: Key, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """The first of many pairs that is in the support."""
        noise = jax.random.normal(key, (self._TRIES, *sample_shape, 2))
        pairs = self._loc + self._scale * noise
        inside = pairs[..., 0] < pairs[..., 1]
        if self._positive:
            inside &= pairs[..., 0] > 0
        first = jnp.argmax(inside, axis=0)
        return jnp.take_along_axis(pairs, first[None, ..., None], axis=0)[0]

    def log_prob(self, value: jax.Array) -> jax.Array:
        return dist.Normal(self._loc, self._scale).log_prob(value).sum(-1) - self._log_mass


def _ordered_mass(loc: np.ndarray, scale: np.ndarray, low: float) -> float:
    """P(low < X_1 < X_2) for independent normals."""
    first, second = stats.norm(loc[0], scale[0]), stats.norm(loc[1], scale[1])

    def at(x: float) -> float:
        return float(first.pdf(x) * second.sf(x))

    start = max(low, loc[0] - 12 * scale[0])
    return float(integrate.quad(at, start, loc[0] + 12 * scale[0], epsabs=1e-13, limit=200)[0])
