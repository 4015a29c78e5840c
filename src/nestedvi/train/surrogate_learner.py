"""Training a model by a surrogate: a scalar whose gradient is the one to follow, computed anew from
a key at every step.

For objectives that are no sequence of weighted levels: levels with exact samples, reweighted
wake-sleep, bounds. It refuses to know what the surrogate is made of.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from nestedvi._types import Key, Scalar
from nestedvi.train.fingerprint import digest_static
from nestedvi.train.learner import AbstractLearner, Gradient, State

__all__ = ["SurrogateLearner"]


class SurrogateLearner(AbstractLearner):
    """A model, all of whose floating-point arrays are learned, and its surrogate.

    **Arguments:**

    - `model`: an `eqx.Module`; with `restarts` every array has a leading axis of that size.
    - `surrogate(key, model, shared)`: the scalar to differentiate, and a record (a NamedTuple of
      scalars) of what to report.
    - `shared`: arrays that all restarts see, a data set say.
    - `name`: what tells this surrogate from another in a checkpoint; a function has no digest.
    """

    what = "part"

    def __init__(
        self,
        model: Any,
        surrogate: Callable[[Key, Any, PyTree], tuple[Scalar, Any]],
        *,
        optimiser: optax.GradientTransformation,
        name: str,
        shared: PyTree = None,
        restarts: int | None = None,
        average: float | None = None,
    ):
        self.adopt(model, eqx.is_inexact_array)
        self.shared, self.surrogate, self.name = shared, surrogate, name
        self.optimiser, self.restarts, self.average = optimiser, restarts, average
        self.num_levels = len(self._parts(self.params))

    def model(self, params: PyTree) -> Any:
        """The model with these parameters."""
        return eqx.combine(params, self.fixed, self.static)

    @staticmethod
    def _parts(params: PyTree) -> list[Any]:
        """The learned arrays by the model's fields, which are told apart when a gradient is not
        finite.
        """
        fields = [getattr(params, name) for name in type(params).__dataclass_fields__]
        return [part for part in fields if any(eqx.is_array(x) for x in jax.tree.leaves(part))]

    def gradient(
        self, key: Key, params: PyTree, fixed: PyTree, shared: PyTree, carry: Any
    ) -> Gradient:
        def objective(p):
            return self.surrogate(key, eqx.combine(p, fixed, self.static), shared)

        grads, info = jax.grad(objective, has_aux=True)(params)
        finite = [
            jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(part)]))
            for part in self._parts(grads)
        ]
        return Gradient(grads, jnp.stack(finite), info, carry)

    def initial_carry(self, key: Key, params: PyTree, fixed: PyTree, shared: PyTree) -> Any:
        return None

    def identity(self, state: State) -> dict[str, Any]:
        return {"surrogate": self.name, "structure": digest_static(self.static)}

    def measures(self, record: Any) -> dict[str, float]:
        means = {name: float(np.mean(x)) for name, x in record._asdict().items()}
        return {name: value for name, value in means.items() if not np.isnan(value)}
