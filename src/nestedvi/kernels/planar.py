"""Planar flows of any depth: deterministic transitions with log q_k = −log|det J| and log r_{k-1} = 0."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.kernels.base import AbstractFlow, Context

__all__ = ["PlanarFlow"]

# softplus(_IDENTITY) = 1: u = 0 is the identity. Without the shift a small u contracts every layer towards its hyperplane, and a
# deep flow starts by crushing all particles into one place, from where reverse KL never finds the other modes.
_IDENTITY = float(np.log(np.expm1(1.0)))

# Under this |w|² counts as zero.
_TINY = 1e-12


class PlanarFlow(AbstractFlow):
    """z ↦ z + û tanh(w·z + b), `depth` times, with û = u + (softplus(w·u + c) − 1 − w·u) w/|w|² so that every layer is
    invertible, and the identity at u = 0.

    The increment is v_k = γ_k(f(z)) |det J_f(z)| / γ_{k-1}(z).
    """

    u: Float[Array, "depth dim"]
    w: Float[Array, "depth dim"]
    b: Float[Array, " depth"]

    def __init__(self, dim: int, depth: int = 32, *, key: Key, scale: float = 0.1):
        if dim < 1 or depth < 1:
            raise ValueError(f"A planar flow needs dim ≥ 1 and depth ≥ 1; got dim = {dim}, depth = {depth}.")
        key_u, key_w, key_b = jax.random.split(key, 3)
        self.u = scale * jax.random.normal(key_u, (depth, dim))
        self.w = jax.random.normal(key_w, (depth, dim)) / np.sqrt(dim)
        self.b = jax.random.normal(key_b, (depth,))

    def move(self, key: Key, z_prev: Float[Array, " dim"], context: Context) -> tuple[Float[Array, " dim"], Scalar]:
        return self.forward_and_log_det(z_prev)

    def forward_and_log_det(self, z: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Scalar]:
        """f(z) and log |det J_f(z)|."""
        if z.shape != self.w.shape[-1:]:
            raise ValueError(f"This planar flow moves particles of shape {self.w.shape[-1:]}; got shape {z.shape}.")
        wu, norm = jnp.sum(self.w * self.u, axis=-1), jnp.sum(self.w**2, axis=-1)
        # A layer with w = 0 only shifts: there is nothing to correct, and w/|w|² does not exist.
        moves = norm > _TINY
        correction = jnp.where(moves, (jax.nn.softplus(wu + _IDENTITY) - 1.0 - wu) / jnp.where(moves, norm, 1.0), 0.0)
        u_hat = self.u + correction[:, None] * self.w
        # 1 + w·û = softplus(w·u + c) by construction; computed from û it would be rounding near 0, and its logarithm NaN.
        one_plus = jnp.where(moves, jax.nn.softplus(wu + _IDENTITY), 1.0 + wu)

        def layer(carry, params):
            z, log_det = carry
            w, b, u, one_plus = params
            t = jnp.tanh(jnp.sum(w * z) + b)
            return (z + u * t, log_det + jnp.log(one_plus * (1 - t**2) + t**2)), None

        start = z, jnp.zeros((), z.dtype)
        # Layers are a handful of flops: unrolling turns loop overhead into fused code, in chunks to bound compile time.
        (z, log_det), _ = jax.lax.scan(layer, start, (self.w, self.b, u_hat, one_plus), unroll=8)
        return z, log_det

    def reverse_move(self, key: Key, z: Any, context: Context) -> Any:
        raise NotImplementedError("A planar flow has no closed-form inverse, so it cannot be run backwards.")
