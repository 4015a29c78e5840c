"""A flexible density on vectors: coordinate by coordinate, each a mixture whose place, width and
shape the earlier ones set.

    p(y) = Π_i p(y_i | y_<i),    y_i = a_i + b_i s_i,    s_i ~ Σ_c π_c N(m_c, σ_c²)

a_i and b_i are place and width of two experts together, as of a prior and a likelihood:

    1 / b_i² = e^{−2 l} (1 + ρ),    a_i = a + δ ρ / (1 + ρ)

l and log ρ (a first width, and how much more precise the second expert is) and δ (how far apart the
two are) are linear in the first few coordinates; a is linear in y_<i. Where one scale governs many
coordinates (a funnel, a hierarchical model) that is their dependence on it, and it goes on where
there were no data. π, m and σ come from a small network of y_<i. With all slopes zero the
coordinates are independent.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.randomness import generator

__all__ = ["SCALE_COORDINATES", "AutoregressiveMixture"]

Vector = Float[Array, " dim"]
# The network sees coordinates within this range, so that it stays what it was beyond the data.
_SEEN = 8.0
# No coordinate is wider or farther away than this, in units of whitened data: an affine map in
# float32 would not bring a draw with coordinates of thousands back to where it came from, and its
# density would be far too low.
_LOG_WIDTHS, _FAR = (-14.0, 3.5), 50.0
# How many of the first coordinates may set the scale of others, and how precise the second expert
# is at first and may become.
SCALE_COORDINATES, _LOG_RHO, _LOG_RHOS = 4, -2.0, (-20.0, 20.0)
# How much wider a coordinate is where it was drawn wide.
_WIDER = 2.5


class _Conditional(eqx.Module):
    """Log shares, means and log widths of a coordinate's components."""

    log_share: Float[Array, "*rest components"]
    mean: Float[Array, "*rest components"]
    log_width: Float[Array, "*rest components"]

    def log_prob(self, y: Float[Array, "*rest"]) -> Float[Array, "*rest"]:
        eps = (y[..., None] - self.mean) * jnp.exp(-self.log_width)
        return jax.nn.logsumexp(
            self.log_share - 0.5 * eps**2 - self.log_width, axis=-1
        ) - 0.5 * np.log(2 * np.pi)

    def wide(self) -> tuple[Float[Array, "*rest"], Float[Array, "*rest"]]:
        """Mean and scale of a Gaussian that is wider than all components together."""
        share = jnp.exp(self.log_share)
        mean = jnp.sum(share * self.mean, axis=-1)
        square = jnp.exp(2 * self.log_width) + (self.mean - mean[..., None]) ** 2
        return mean, _WIDER * jnp.sqrt(jnp.sum(share * square, axis=-1))


class AutoregressiveMixture(AbstractSampleable):
    """The density above; a share `wide` of its draws has one coordinate drawn from a much wider
    Gaussian, early ones more often.

    Those draws look for mass where there were no data; what later coordinates do there follows from
    the learned dependence. The share is held as its logit, which any number may be. Draws carry no
    gradient.
    """

    features: Float[Array, "dim dim hidden"]
    feature_bias: Float[Array, "dim hidden"]
    heads: Float[Array, "dim hidden outputs"]
    head_bias: Float[Array, "dim outputs"]
    slopes: Float[Array, "dim dim"]
    scale_slopes: Float[Array, "dim leading 3"]
    scale_bias: Float[Array, "dim 3"]
    wide_logit: Scalar

    def __init__(
        self,
        y: Float[Array, "data dim"] | np.ndarray,
        *,
        key: Key,
        components: int = 8,
        hidden: int = 16,
    ):
        """Starts with independent coordinates: components at the data's quantiles. On the host,
        where no number of the data need be compiled for.
        """
        y, rng = np.asarray(y), generator(key)
        dim, leading = y.shape[1], min(y.shape[1], SCALE_COORDINATES)
        places = np.quantile(y, (np.arange(components) + 0.5) / components, axis=0).T
        width = 1.5 / np.sqrt(components) * np.std(y, axis=0)[:, None] + 1e-3
        widths = np.broadcast_to(np.log(width), places.shape)

        def array(x: Any) -> Array:
            return jnp.asarray(np.asarray(x, y.dtype))

        self.features = array(rng.normal(size=(dim, dim, hidden)) / np.sqrt(dim))
        self.feature_bias = array(0.5 * rng.normal(size=(dim, hidden)))
        self.heads = array(np.zeros((dim, hidden, 3 * components)))
        self.head_bias = array(np.concatenate([np.zeros_like(places), places, widths], axis=1))
        self.slopes = array(np.zeros((dim, dim)))
        self.scale_slopes = array(np.zeros((dim, leading, 3)))
        self.scale_bias = array(np.tile([0.0, 0.0, _LOG_RHO], (dim, 1)))
        self.wide_logit = array(-np.inf)

    @property
    def dim(self) -> int:
        return self.features.shape[0]

    def _conditional(
        self, h: Float[Array, "*rest outputs"], place, scales: Float[Array, "*rest 3"]
    ) -> _Conditional:
        log_share, mean, log_width = jnp.split(h, 3, axis=-1)
        log_first, apart, log_rho = jnp.split(scales, 3, axis=-1)
        log_rho = jnp.clip(log_rho, *_LOG_RHOS)
        log_scale = jnp.clip(log_first - 0.5 * jax.nn.softplus(log_rho), -10.0, 10.0)
        place = place[..., None] + jax.nn.sigmoid(log_rho) * apart
        log_width = jnp.clip(log_width + log_scale, *_LOG_WIDTHS)
        mean = jnp.clip(place + jnp.exp(log_scale) * mean, -_FAR, _FAR)
        return _Conditional(jax.nn.log_softmax(log_share), mean, log_width)

    def conditionals(self, y: Vector, has_network: bool = True) -> _Conditional:
        """Every coordinate's mixture, given the coordinates before it."""
        # Masked weights rather than masked coordinates: for many particles it is then one matrix
        # product.
        before = jnp.tril(jnp.ones((self.dim, self.dim), y.dtype), -1)
        outputs = self.head_bias
        if has_network:
            features = jnp.einsum(
                "j,ijh->ih", jnp.clip(y, -_SEEN, _SEEN), before[..., None] * self.features
            )
            hidden = jax.nn.silu(features + self.feature_bias)
            outputs = jnp.einsum("ih,iho->io", hidden, self.heads) + outputs
        return self._conditional(outputs, (before * self.slopes) @ y, self._scales(y))

    def second_share(self, y: Vector) -> Vector:
        """ρ / (1 + ρ) of every coordinate."""
        return jax.nn.sigmoid(jnp.clip(self._scales(y)[:, 2], *_LOG_RHOS))

    def _scales(self, y: Vector) -> Float[Array, "dim 3"]:
        """l, δ and log ρ of every coordinate."""
        num = self.scale_slopes.shape[1]
        before = jnp.tril(jnp.ones((self.dim, num), y.dtype), -1)
        return jnp.einsum("j,ijc->ic", y[:num], before[..., None] * self.scale_slopes) + (
            self.scale_bias
        )

    def _one(self, y: Vector, i) -> _Conditional:
        """Coordinate i's conditional; y is zero from there on."""
        hidden = jax.nn.silu(jnp.clip(y, -_SEEN, _SEEN) @ self.features[i] + self.feature_bias[i])
        scales = y[: self.scale_slopes.shape[1]] @ self.scale_slopes[i] + self.scale_bias[i]
        return self._conditional(
            hidden @ self.heads[i] + self.head_bias[i], self.slopes[i] @ y, scales
        )

    def _log_turns(self) -> Float[Array, " dim"]:
        """How often each coordinate is the wide one."""
        return jax.nn.log_softmax(-jnp.log(1.0 + jnp.arange(self.dim)))

    def log_core(self, y: Vector, *, has_network: bool = True) -> Scalar:
        """log p(y) without wide draws: what is fitted. Without the network it is as it was before
        the heads learned anything.
        """
        return jnp.sum(self.conditionals(y, has_network).log_prob(y))

    def log_gamma(self, z: Vector) -> Scalar:
        conditional = self.conditionals(z)
        core = conditional.log_prob(z)
        mean, scale = conditional.wide()
        wide = -0.5 * ((z - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * np.log(2 * np.pi)
        # One coordinate's factor is replaced by the wide one.
        replaced = jax.nn.logsumexp(self._log_turns() + wide - core)
        log_usual, log_wide = (
            jax.nn.log_sigmoid(-self.wide_logit),
            jax.nn.log_sigmoid(self.wide_logit),
        )
        return jnp.sum(core) + jnp.logaddexp(log_usual, log_wide + replaced)

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros((), self.heads.dtype)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Vector:
        key_wide, key_turn, key_draws = jax.random.split(key, 3)
        turn = jnp.where(
            jax.random.uniform(key_wide) < jax.nn.sigmoid(self.wide_logit),
            jax.random.categorical(key_turn, self._log_turns()),
            -1,
        )

        def draw(y, inputs):
            i, key = inputs
            key_component, key_noise = jax.random.split(key)
            conditional, noise = self._one(y, i), jax.random.normal(key_noise)
            c = jax.random.categorical(key_component, conditional.log_share)
            mean, scale = conditional.wide()
            usual = conditional.mean[c] + jnp.exp(conditional.log_width[c]) * noise
            return y.at[i].set(jnp.where(turn == i, mean + scale * noise, usual)), None

        inputs = jnp.arange(self.dim), jax.random.split(key_draws, self.dim)
        return jax.lax.scan(draw, jnp.zeros(self.dim, self.heads.dtype), inputs)[0]
