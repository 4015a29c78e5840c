"""Planar flows of any depth: deterministic transitions with log q_k = −log|det J| and log r_{k-1} =
0, and their densities. No other flow lives here.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.kernels.base import AbstractFlow, Context

__all__ = ["PlanarDensity", "PlanarFlow"]

# softplus(_IDENTITY) = 1: u = 0 is the identity. Without the shift a small u contracts every layer
# towards its hyperplane, and a deep flow starts by crushing all particles into one place, from
# where reverse KL never finds the other modes.
_IDENTITY = float(np.log(np.expm1(1.0)))

# Under this |w|² counts as zero.
_TINY = 1e-12

# Bisection to the last bit of float64.
_HALVINGS = 60


class PlanarFlow(AbstractFlow):
    """z ↦ z + û tanh(w·z + b), `depth` times, with û = u + (softplus(w·u + c) − 1 − w·u) w/|w|² so
    that every layer is invertible, and the identity at u = 0.

    The increment is v_k = γ_k(f(z)) |det J_f(z)| / γ_{k-1}(z).

    Args:
        dim: coordinates of a particle.
        depth: layers.
        key: for the first parameters.
        scale: of the first u; the smaller, the nearer the flow starts to the identity.
        spread: of the first offsets b. Layers bend space where w·z + b = 0, which should be where
            particles are.
        unit: `u`, `w` and `b` are held in multiples of it. An optimiser such as Adam moves every
            number by its rate, whatever the number means; particles that have far to go need
            parameters that count for more.

    Example:
        ```python
        flow = nvi.PlanarFlow(2, 8, key=jax.random.key(0))
        z, log_det = flow.move(None, jnp.ones(2), None)
        ```
    """

    u: Float[Array, "depth dim"]
    w: Float[Array, "depth dim"]
    b: Float[Array, " depth"]
    unit: float = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        depth: int = 32,
        *,
        key: Key,
        scale: float = 0.1,
        spread: float = 1.0,
        unit: float = 1.0,
    ):
        if dim < 1 or depth < 1:
            raise ValueError(
                f"A planar flow needs dim ≥ 1 and depth ≥ 1; got dim = {dim}, depth = {depth}."
            )
        if not unit > 0:
            raise ValueError(
                f"The unit of a planar flow's parameters must be positive; got {unit}."
            )
        key_u, key_w, key_b = jax.random.split(key, 3)
        self.u = scale * jax.random.normal(key_u, (depth, dim)) / unit
        self.w = jax.random.normal(key_w, (depth, dim)) / (np.sqrt(dim) * unit)
        self.b = spread * jax.random.normal(key_b, (depth,)) / unit
        self.unit = unit

    def move(
        self, key: Key, z_prev: Float[Array, " dim"], context: Context
    ) -> tuple[Float[Array, " dim"], Scalar]:
        return self.forward_and_log_det(z_prev)

    def forward_and_log_det(self, z: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Scalar]:
        """f(z) and log |det J_f(z)|."""
        if z.shape != self.w.shape[-1:]:
            raise ValueError(
                f"This planar flow moves particles of shape {self.w.shape[-1:]}; got shape"
                f" {z.shape}."
            )
        layers = self._layers()

        def layer(carry, params):
            z, log_det = carry
            w, b, u, one_plus = params
            t = jnp.tanh(jnp.sum(w * z) + b)
            return (z + u * t, log_det + jnp.log(one_plus * (1 - t**2) + t**2)), None

        start = z, jnp.zeros((), z.dtype)
        # Layers are a handful of flops: unrolling turns loop overhead into fused code, in chunks to
        # bound compile time.
        (z, log_det), _ = jax.lax.scan(layer, start, layers, unroll=8)
        return z, log_det

    def _layers(
        self,
    ) -> tuple[
        Float[Array, "depth dim"],
        Float[Array, " depth"],
        Float[Array, "depth dim"],
        Float[Array, " depth"],
    ]:
        """w, b, û and 1 + w·û of every layer."""
        u, w, b = self.unit * self.u, self.unit * self.w, self.unit * self.b
        wu, norm = jnp.sum(w * u, axis=-1), jnp.sum(w**2, axis=-1)
        # A layer with w = 0 only shifts: there is nothing to correct, and w/|w|² does not exist.
        moves = norm > _TINY
        correction = jnp.where(
            moves, (jax.nn.softplus(wu + _IDENTITY) - 1.0 - wu) / jnp.where(moves, norm, 1.0), 0.0
        )
        # 1 + w·û = softplus(w·u + c) by construction; computed from û it would be rounding near 0,
        # and its logarithm NaN.
        one_plus = jnp.where(moves, jax.nn.softplus(wu + _IDENTITY), 1.0 + wu)
        return w, b, u + correction[:, None] * w, one_plus

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """f⁻¹(z), layer by layer, each by bisection on the one number t = w·z + b that it depends
        on.
        """

        def layer(y, params):
            w, b, u, one_plus = params
            # t ↦ t + (w·û) tanh t is increasing, and moves t by less than |w·û|.
            wu, goal = one_plus - 1.0, jnp.sum(w * y) + b
            reach = jnp.abs(wu)

            def halve(_, ends):
                low, high = ends
                middle = 0.5 * (low + high)
                above = middle + wu * jnp.tanh(middle) > goal
                return jnp.where(above, low, middle), jnp.where(above, middle, high)

            low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (goal - reach, goal + reach))
            return y - u * jnp.tanh(0.5 * (low + high)), None

        z, _ = jax.lax.scan(layer, z, self._layers(), reverse=True)
        return z

    def reverse_move(
        self, key: Key, z: Float[Array, " dim"], context: Context
    ) -> tuple[Float[Array, " dim"], Scalar]:
        z_prev = self.inverse(z)
        return z_prev, self.forward_and_log_det(z_prev)[1]


class PlanarDensity(AbstractSampleable):
    """π(z) = N(f(z); 0, I) |det J_f(z)|, f a planar flow from z to noise: scored directly, drawn by
    inverting the flow.

    A draw carries no gradient, since the inversion is a search: levels use it as the side that is
    scored.
    """

    flow: PlanarFlow

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        noise, log_det = self.flow.forward_and_log_det(z)
        return jnp.sum(-0.5 * noise**2 - 0.5 * np.log(2 * np.pi)) + log_det

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.flow.u.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Float[Array, " dim"]:
        return self.flow.inverse(jax.random.normal(key, self.flow.w.shape[-1:], self.flow.w.dtype))
