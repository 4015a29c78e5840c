"""The empirical distribution p̂ of given points, any pytree with a leading axis. It
refuses to smooth: the points are all there is.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from nestedvi._types import Key, Particle, Scalar
from nestedvi.densities.base import AbstractSampleable

__all__ = ["Empirical"]


class Empirical(AbstractSampleable):
    """Uniform on the points: p̂(x) = 1/n for each of them; what is not among them is not told
    apart.

    Draws are the points themselves, so whatever gradient a point carries (features computed from
    it) its draws carry.
    """

    points: PyTree

    def __check_init__(self):
        if not jax.tree.leaves(self.points):
            raise ValueError("An empirical distribution needs points: arrays with a leading axis.")

    @property
    def num_points(self) -> int:
        return jax.tree.leaves(self.points)[0].shape[0]

    def log_gamma(self, z: Particle) -> Scalar:
        return jnp.asarray(-np.log(self.num_points), jnp.result_type(float))

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros(())

    @property
    def reparameterised(self) -> bool:
        return True

    def sample(self, key: Key) -> Particle:
        index = jax.random.randint(key, (), 0, self.num_points)
        return jax.tree.map(lambda x: x[index], self.points)
