"""Unadjusted Langevin moves: a step along ∇log γ_k with noise, no acceptance, and the same step as
its own reverse kernel.

    q_k(z' | z) = N(z + ε (∇log γ_k(z) + u(z)), 2ε)
    r_{k-1}(z | z') = N(z' + ε (∇log γ_k(z') + ǔ(z')), 2ε)

For small ε the two are each other's time reversal under γ_k, and log r − log q tends to the log
γ_k(z) − log γ_k(z') of an MCMC move; at any ε the weights are proper, because both densities are
known. Draws are reparameterised, so that ε, the drifts u and ǔ, and θ_k through ∇log γ_k can all be
learned; that takes second derivatives of log γ_k.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Key, Scalar
from nestedvi.kernels.base import AbstractKernel, AbstractTransition, Context, Scores, own_density
from nestedvi.kernels.gaussian import normal_log_prob

__all__ = ["DriftNetwork", "LangevinKernel", "LangevinTransition"]

Drift = Callable[[Float[Array, " dim"], Context], Float[Array, " dim"]]


def _log_step(step_size: Any) -> Float[Array, "..."]:
    step_size = jnp.asarray(step_size, float)
    if step_size.ndim > 1:
        raise ValueError(
            "A Langevin step size is one number, or one for each coordinate; got shape"
            f" {step_size.shape}."
        )
    if (
        not isinstance(step_size, jax.core.Tracer)
        and not (np.isfinite(step_size) & (step_size > 0)).all()
    ):
        raise ValueError(
            "A Langevin step size must be positive and finite; got"
            f" {np.asarray(step_size).tolist()}."
        )
    return jnp.log(step_size)


def _score(z: Float[Array, " dim"], context: Context) -> Float[Array, " dim"]:
    """∇log γ_k(z), and 0 where it does not exist: there the move is a random walk, whose density is
    as good as any.

    No derivative is taken in z there either. That of θ_k cannot be shielded here: a log density
    whose own derivative is NaN where it is −inf gives a gradient that is not finite, and training
    leaves it out.
    """
    log_gamma = own_density(context, "A Langevin move")
    exists = jnp.all(jnp.isfinite(jax.grad(log_gamma)(jax.lax.stop_gradient(z))))
    score = jax.grad(log_gamma)(jnp.where(exists, z, jax.lax.stop_gradient(z)))
    return jnp.where(exists, score, 0.0)


class LangevinKernel(AbstractKernel):
    """q(z' | z) = N(z + ε (∇log γ_k(z) + u(z)), 2ε), with a step size ε for all coordinates or one
    for each.

    `drift(z, context)` is u, nothing by default. As the two kernels of a `Transition` each has a
    step size of its own; in a `LangevinTransition` they share one.
    """

    log_step: Float[Array, "..."]
    drift: Drift | None

    def __init__(self, step_size: Any, drift: Drift | None = None):
        self.log_step, self.drift = _log_step(step_size), drift

    @property
    def reparameterised(self) -> bool:
        return True

    def params(
        self, z: Float[Array, " dim"], context: Context
    ) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        """Mean and standard deviation at z."""
        return _params(self.log_step, self.drift, z, context)

    def sample(self, key: Key, z: Float[Array, " dim"], context: Context) -> Float[Array, " dim"]:
        return _draw(key, *self.params(z, context))

    def log_prob(
        self, z_new: Float[Array, " dim"], z: Float[Array, " dim"], context: Context
    ) -> Scalar:
        return normal_log_prob(z_new, *self.params(z, context))


class LangevinTransition(AbstractTransition):
    """A Langevin move and its reverse, with one step size ε for both: when ε is learned, q_k and
    r_{k-1} change together.

    - nothing else: annealing by unadjusted Langevin moves; ε is the only parameter.
    - `reverse_drift`: ǔ corrects the reverse kernel where particles do not follow γ_k. At its best,
      for small ε, it is 2 (∇log π̂ − ∇log γ_k), with π̂ the density that they do follow.
    - `drift`: u moves particles where γ_k alone would not; with `opposite=True` the reverse kernel
      uses ǔ = −u, the reversal of a process whose density at every level is γ_k.

    ε and u belong to the group "forward", ǔ to "reverse". ε is in r_{k-1} all the same: its
    gradient is that of both roles.

    ```python
    def make(key):
        drift = nvi.kernels.DriftNetwork(2, key=key)
        return nvi.kernels.LangevinTransition(jnp.full(2, 0.1), reverse_drift=drift)

    transitions = nvi.Stacked(nvi.stack(make, jax.random.key(0), 7))
    ```
    """

    log_step: Float[Array, "..."]
    drift: Drift | None
    reverse_drift: Drift | None
    opposite: bool = eqx.field(static=True)

    def __init__(
        self,
        step_size: Any,
        *,
        drift: Drift | None = None,
        reverse_drift: Drift | None = None,
        opposite: bool = False,
    ):
        if opposite and (drift is None or reverse_drift is not None):
            raise ValueError(
                "opposite=True uses −drift in the reverse kernel: give `drift`, and no"
                " `reverse_drift`."
            )
        self.log_step, self.drift, self.reverse_drift, self.opposite = (
            _log_step(step_size),
            drift,
            reverse_drift,
            opposite,
        )

    def _forward(
        self, z: Float[Array, " dim"], context: Context
    ) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        return _params(self.log_step, self.drift, z, context)

    def _reverse(
        self, z: Float[Array, " dim"], context: Context
    ) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        drift, sign = (self.drift, -1.0) if self.opposite else (self.reverse_drift, 1.0)
        return _params(self.log_step, drift, z, context, sign)

    def move(
        self, key: Key, z_prev: Float[Array, " dim"], context: Context
    ) -> tuple[Float[Array, " dim"], None]:
        # ∇log γ_k(z_{k-1}) is not handed on to `score`, which may have to see it without its
        # gradients; compiled, both are one.
        return _draw(key, *self._forward(z_prev, context)), None

    def score(
        self, z: Float[Array, " dim"], z_prev: Float[Array, " dim"], aux: None, context: Context
    ) -> Scores:
        log_q = normal_log_prob(z, *self._forward(z_prev, context))
        return Scores(
            log_q, normal_log_prob(z_prev, *self._reverse(z, context)), jnp.zeros_like(log_q)
        )

    def reverse_move(
        self, key: Key, z: Float[Array, " dim"], context: Context
    ) -> tuple[Float[Array, " dim"], None]:
        return _draw(key, *self._reverse(z, context)), None

    def groups(self) -> PyTree:
        def group(at, _):
            return "reverse" if at[0].name == "reverse_drift" else "forward"

        return jax.tree_util.tree_map_with_path(group, self)

    @property
    def reparameterised(self) -> bool:
        return True

    @property
    def holdable(self) -> bool:
        return True


class DriftNetwork(eqx.Module):
    """u(z) = W_2 tanh(W_1 z + b_1) + b_2, with W_2 = 0 and b_2 = 0 at the start: a new kernel is
    the one without it.
    """

    hidden_weight: Float[Array, "dim hidden"]
    hidden_bias: Float[Array, " hidden"]
    out_weight: Float[Array, "hidden dim"]
    out_bias: Float[Array, " dim"]

    def __init__(self, dim: int, hidden: int = 50, *, key: Key):
        if dim < 1 or hidden < 1:
            raise ValueError(
                f"A drift network needs dim ≥ 1 and hidden ≥ 1; got {dim} and {hidden}."
            )
        key_weight, key_bias = jax.random.split(key)
        bound = 1 / np.sqrt(dim)
        self.hidden_weight = jax.random.uniform(
            key_weight, (dim, hidden), minval=-bound, maxval=bound
        )
        self.hidden_bias = jax.random.uniform(key_bias, (hidden,), minval=-bound, maxval=bound)
        self.out_weight = jnp.zeros((hidden, dim), self.hidden_weight.dtype)
        self.out_bias = jnp.zeros(dim, self.hidden_weight.dtype)

    def __call__(self, z: Float[Array, " dim"], context: Context) -> Float[Array, " dim"]:
        hidden = jnp.tanh(z @ self.hidden_weight + self.hidden_bias)
        # Not a matrix product: jaxlib 0.10.2 compiles one with a constant zero matrix, as a new
        # network has, wrongly on the CPU where a sum follows, from some thousand particles on (jax
        # issue 39103 is of this kind).
        return jnp.sum(hidden[:, None] * self.out_weight, axis=0) + self.out_bias


def _params(
    log_step: Float[Array, "..."],
    drift: Drift | None,
    z: Float[Array, " dim"],
    context: Context,
    sign: float = 1.0,
) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    """Mean z + ε (∇log γ_k(z) ± u(z)) and standard deviation √(2ε)."""
    if jnp.ndim(z) != 1 or jnp.shape(log_step) not in ((), jnp.shape(z)):
        expected = (
            "vectors" if jnp.shape(log_step) == () else f"particles of shape {jnp.shape(log_step)}"
        )
        raise ValueError(
            f"This Langevin kernel moves {expected}; got shape {jnp.shape(z)}. Give one step size,"
            " or one for each coordinate."
        )
    step = jnp.exp(log_step)
    direction = _score(z, context)
    if drift is not None:
        direction = direction + sign * drift(z, context)
    return z + step * direction, jnp.broadcast_to(jnp.sqrt(2 * step), z.shape)


def _draw(key: Key, loc: Float[Array, " dim"], scale: Float[Array, " dim"]) -> Float[Array, " dim"]:
    return loc + scale * jax.random.normal(key, loc.shape, loc.dtype)
