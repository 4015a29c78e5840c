"""Gaussian kernels whose mean and scale come from a network: the paper's residual architecture.
Noise and network are all there is: no acceptance, no gradient of γ_k.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.kernels.base import AbstractKernel, Context

__all__ = ["GaussianKernel", "ResidualGaussian", "normal_log_prob"]


def normal_log_prob(
    z: Float[Array, " dim"], loc: Float[Array, " dim"], scale: Float[Array, " dim"]
) -> Scalar:
    """log N(z; loc, diag(scale)²)."""
    return jnp.sum(-0.5 * ((z - loc) / scale) ** 2 - jnp.log(scale) - 0.5 * np.log(2 * np.pi))


def _check_shape(z: Array, expected: tuple[int, ...]) -> None:
    """Broadcasting would move a particle of the wrong shape without a word."""
    if jnp.shape(z) != expected:
        raise ValueError(
            f"This Gaussian kernel moves particles of shape {expected}; got shape {jnp.shape(z)}. "
            "Build it with dim = the size of one particle."
        )


def _directions(key: Key, dim: int, num: int) -> Float[Array, "dim num"]:
    """Unit vectors in columns: random frames of orthogonal ones, each with its opposites."""
    keys = jax.random.split(key, -(-num // (2 * dim)))
    frames = jax.vmap(lambda k: jax.random.orthogonal(k, dim))(keys)
    return jnp.concatenate([frames, -frames], axis=1).reshape(-1, dim)[:num].T


class ResidualGaussian(AbstractKernel):
    """q(z' | z) = N(z + W_μ h(z) + b_μ, softplus(W_σ h(z) + b_σ)²), h = relu(W_h z + b_h).

    The output layers start at zero, so that a new kernel is the identity plus noise of standard
    deviation `scale`: with random output layers the first thousands of steps are spent undoing
    them, and with wide noise they are spent narrowing it. The hidden units look in directions that
    are spread evenly: a mode in a direction that none looks in is lost.

    Args:
        dim: coordinates of a particle.
        hidden: units of the hidden layer.
        key: for the first parameters.
        scale: standard deviation of the noise at the start.

    Example:
        ```python
        kernel = nvi.ResidualGaussian(2, hidden=16, key=jax.random.key(0))
        z = kernel.sample(jax.random.key(1), jnp.ones(2), None)
        kernel.log_prob(z, jnp.ones(2), None)
        ```
    """

    hidden_weight: Float[Array, "dim hidden"]
    hidden_bias: Float[Array, " hidden"]
    out_weight: Float[Array, "hidden 2*dim"]
    out_bias: Float[Array, " 2*dim"]

    def __init__(self, dim: int, hidden: int = 50, *, key: Key, scale: float = float(np.log(2))):
        if dim < 1 or hidden < 1:
            raise ValueError(
                f"A residual Gaussian kernel needs dim ≥ 1 and hidden ≥ 1; got {dim} and {hidden}."
            )
        key_weight, key_bias = jax.random.split(key)
        bound = 1 / np.sqrt(dim)
        self.hidden_weight = _directions(key_weight, dim, hidden) / np.sqrt(3)
        self.hidden_bias = jax.random.uniform(key_bias, (hidden,), minval=-bound, maxval=bound)
        self.out_weight = jnp.zeros((hidden, 2 * dim), self.hidden_weight.dtype)
        self.out_bias = jnp.concatenate([jnp.zeros(dim), jnp.full(dim, np.log(np.expm1(scale)))])

    @property
    def reparameterised(self) -> bool:
        return True

    def params(self, z: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        """Mean and standard deviation at z."""
        _check_shape(z, self.hidden_weight.shape[:1])
        hidden = jax.nn.relu(z @ self.hidden_weight + self.hidden_bias)
        shift, raw_scale = jnp.split(hidden @ self.out_weight + self.out_bias, 2)
        return z + shift, jax.nn.softplus(raw_scale)

    def sample(self, key: Key, z: Float[Array, " dim"], context: Context) -> Float[Array, " dim"]:
        loc, scale = self.params(z)
        return loc + scale * jax.random.normal(key, loc.shape, loc.dtype)

    def log_prob(
        self, z_new: Float[Array, " dim"], z: Float[Array, " dim"], context: Context
    ) -> Scalar:
        return normal_log_prob(z_new, *self.params(z))


class GaussianKernel(AbstractKernel):
    """q(z' | z) = N(z'; a·z + b, scale²) with free coordinates a, b and scale: the smallest
    learnable Gaussian kernel.

    `score_only=True` declares its draws non-reparameterised, for models whose density cannot be
    differentiated in z.
    """

    slope: Float[Array, " dim"]
    shift: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]
    score_only: bool = eqx.field(static=True, default=False)

    @property
    def reparameterised(self) -> bool:
        return not self.score_only

    def _loc(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        _check_shape(z, self.shift.shape)
        return self.slope * z + self.shift

    def sample(self, key: Key, z: Float[Array, " dim"], context: Context) -> Float[Array, " dim"]:
        noise = jax.random.normal(key, self.shift.shape, self.shift.dtype)
        z_new = self._loc(z) + jnp.exp(self.log_scale) * noise
        return jax.lax.stop_gradient(z_new) if self.score_only else z_new

    def log_prob(
        self, z_new: Float[Array, " dim"], z: Float[Array, " dim"], context: Context
    ) -> Scalar:
        return normal_log_prob(z_new, self._loc(z), jnp.exp(self.log_scale))

    def log_prob_score(
        self, z_new: Float[Array, " dim"], z: Float[Array, " dim"], context: Context
    ) -> Scalar:
        return self.log_prob(z_new, z, context) if self.score_only else jnp.zeros(())
