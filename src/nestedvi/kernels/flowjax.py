"""FlowJAX bijections as flow transitions (needs the extra `nestedvi[flows]`)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Key, Scalar
from nestedvi.kernels.base import AbstractTransition, Context, Scores

__all__ = ["BijectionFlow"]


class BijectionFlow(AbstractTransition):
    """z ↦ f(z) for any bijection with `transform_and_log_det` and `inverse_and_log_det`, as FlowJAX's have.

    ```python
    nvi.BijectionFlow(flowjax.bijections.Affine(jnp.zeros(2), jnp.ones(2)))
    ```
    """

    bijection: Any

    def move(self, key: Key, z_prev: Float[Array, " dim"], context: Context) -> tuple[Float[Array, " dim"], Scalar]:
        return self.bijection.transform_and_log_det(z_prev)

    def score(self, z: Float[Array, " dim"], z_prev: Float[Array, " dim"], aux: Scalar, context: Context) -> Scores:
        return Scores(-aux, jnp.zeros_like(aux), jnp.zeros_like(aux))

    def reverse_move(self, key: Key, z: Float[Array, " dim"], context: Context) -> tuple[Float[Array, " dim"], Scalar]:
        z_prev, log_det_inverse = self.bijection.inverse_and_log_det(z)
        return z_prev, -log_det_inverse

    def groups(self) -> PyTree:
        return jax.tree.map(lambda x: "forward" if eqx.is_inexact_array(x) else "fixed", self)

    @property
    def reparameterised(self) -> bool:
        return True

    @property
    def holdable(self) -> bool:
        return False
