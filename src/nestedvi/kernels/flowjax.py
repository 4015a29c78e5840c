"""FlowJAX bijections as flow transitions (needs the extra `nestedvi[flows]`). It refuses to define
bijections of its own.
"""

from typing import Any

from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.kernels.base import AbstractFlow, Context

__all__ = ["BijectionFlow"]


class BijectionFlow(AbstractFlow):
    """z ↦ f(z) for any bijection with `transform_and_log_det` and `inverse_and_log_det`, as
    FlowJAX's have.

    ```python
    nvi.kernels.BijectionFlow(flowjax.bijections.Affine(jnp.zeros(2), jnp.ones(2)))
    ```
    """

    bijection: Any

    def move(
        self, key: Key, z_prev: Float[Array, " dim"], context: Context
    ) -> tuple[Float[Array, " dim"], Scalar]:
        return self.bijection.transform_and_log_det(z_prev)

    def reverse_move(
        self, key: Key, z: Float[Array, " dim"], context: Context
    ) -> tuple[Float[Array, " dim"], Scalar]:
        z_prev, log_det_inverse = self.bijection.inverse_and_log_det(z)
        return z_prev, -log_det_inverse
