"""The factors of the BGMM-VAE and of its inference, each a density or a kernel of the library, so
that levels are made by joining them. How they make up the model is in `model`.

    λ → c_{1:N}  Assign          c → z  Mixture     z → x  Decode
    c_{1:N} → λ  Proportions     z → c  Classify    x → z  Encode
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.continuous_bernoulli import (
    LOGIT_LIMIT,
    continuous_bernoulli_log_prob,
    continuous_bernoulli_mean,
    continuous_bernoulli_sample,
)
from nestedvi.densities.dirichlet import TINY, dirichlet_log_prob
from nestedvi.kernels.base import AbstractKernel, Context
from nestedvi.paper.bgmm_vae.networks import Dense, ImageDecoder
from nestedvi.sampler.level import hold

__all__ = [
    "Assign",
    "Classify",
    "Coded",
    "Decode",
    "Encode",
    "Mixture",
    "MixtureMarginal",
    "Proportions",
    "count",
    "draw_categorical",
]

Lam = Float[Array, " clusters"]
Code = Float[Array, " dim"]


def draw_categorical(
    key: Key, probs: Float[Array, " clusters"], shape: tuple[int, ...] = ()
) -> Int[Array, " *shape"]:
    """Draws from Cat(probs) by the inverse cdf: one uniform each, where the usual Gumbel trick
    needs one a cluster.
    """
    ends = jnp.cumsum(probs)
    u = ends[-1] * jax.random.uniform(key, shape, probs.dtype)
    return jnp.minimum(jnp.sum(u[..., None] >= ends, axis=-1), probs.shape[0] - 1)


def count(c: Int[Array, " N"], clusters: int) -> Float[Array, " clusters"]:
    """How many of the assignments fall to each cluster."""
    return jnp.sum(jax.nn.one_hot(c, clusters), axis=0)


class Assign(AbstractKernel):
    """p(c_{1:N} | λ) = Π λ_{c_n}; no parameters."""

    num: int = eqx.field(static=True)

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key, z: Lam, context: Context) -> Int[Array, " N"]:
        return draw_categorical(key, z, (self.num,))

    def log_prob(self, z_new: Int[Array, " N"], z: Lam, context: Context) -> Scalar:
        return jnp.sum(count(z_new, z.shape[0]) * jnp.log(jnp.maximum(z, TINY)))

    def log_prob_score(self, z_new: Int[Array, " N"], z: Lam, context: Context) -> Scalar:
        return self.log_prob(z_new, z, context)


class Proportions(AbstractKernel):
    """q(λ | c_{1:N}) = Dir(softplus(network(mean_n features(c_n))) + counts).

    A feature depends on c_n alone, so the mean over N is a mean over clusters, weighted by their
    counts. Draws carry no gradient.
    """

    features: Dense
    hidden: Dense
    out: Dense

    def __init__(self, clusters: int, hidden: int, *, key: Key):
        keys = jax.random.split(key, 3)
        self.features = Dense(clusters, hidden, key=keys[0])
        self.hidden = Dense(hidden, hidden, key=keys[1])
        self.out = Dense(hidden, clusters, key=keys[2])

    def concentration(self, counts: Float[Array, " clusters"]) -> Float[Array, " clusters"]:
        """The Dirichlet's parameters, from the number of assignments to each cluster."""
        features = jax.nn.silu(self.features.weight + self.features.bias)
        mean = (counts / jnp.sum(counts)) @ features
        return jax.nn.softplus(self.out(jax.nn.silu(self.hidden(mean)))) + counts

    @property
    def reparameterised(self) -> bool:
        return False

    def _concentration(self, c: Int[Array, " N"]) -> Float[Array, " clusters"]:
        return self.concentration(count(c, self.out.bias.shape[0]))

    def sample(self, key: Key, z: Int[Array, " N"], context: Context) -> Lam:
        log_gamma = jax.random.loggamma(key, hold(self)._concentration(z))
        return jnp.maximum(jax.nn.softmax(log_gamma), TINY)

    def log_prob(self, z_new: Lam, z: Int[Array, " N"], context: Context) -> Scalar:
        return dirichlet_log_prob(z_new, self._concentration(z))

    def log_prob_score(self, z_new: Lam, z: Int[Array, " N"], context: Context) -> Scalar:
        return self.log_prob(z_new, z, context)


class Mixture(AbstractKernel):
    """p(z | c) = N(z; μ_c, diag(1/τ_c))."""

    mu: Float[Array, "clusters dim"]
    log_tau: Float[Array, "clusters dim"]

    @property
    def reparameterised(self) -> bool:
        return True

    def sample(self, key: Key, z: Int[Array, ""], context: Context) -> Code:
        noise = jax.random.normal(key, self.mu.shape[1:], self.mu.dtype)
        return self.mu[z] + jnp.exp(-0.5 * self.log_tau[z]) * noise

    def log_prob(self, z_new: Code, z: Int[Array, ""], context: Context) -> Scalar:
        # One-hot instead of an index: the gradient is then a sum, not a scatter.
        return jnp.sum(jax.nn.one_hot(z, self.mu.shape[0]) * self.log_probs(z_new))

    def log_probs(self, z: Code) -> Float[Array, " clusters"]:
        """log p(z | c) for every c."""
        square = (z - self.mu) ** 2 * jnp.exp(self.log_tau)
        return 0.5 * jnp.sum(self.log_tau - square - np.log(2 * np.pi), axis=-1)


class MixtureMarginal(AbstractSampleable):
    """Σ_c π(c) p(z | c), with c summed out."""

    logits: Float[Array, " clusters"]
    mixture: Mixture

    def log_gamma(self, z: Code) -> Scalar:
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + self.mixture.log_probs(z))

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros(())

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Code:
        key_c, key_z = jax.random.split(key)
        c = draw_categorical(key_c, jax.nn.softmax(self.logits))
        return self.mixture.sample(key_z, c, Context(None, None))


class Classify(AbstractKernel):
    """q(c | z) = softmax(network(z)), two hidden layers."""

    layers: tuple[Dense, ...]

    def __init__(self, dim: int, clusters: int, hidden: int, *, key: Key):
        keys = jax.random.split(key, 3)
        sizes = (dim, hidden, hidden, clusters)
        self.layers = tuple(
            Dense(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )

    def log_probs(self, z: Code) -> Float[Array, " clusters"]:
        """log q(c | z) for every c."""
        h = z
        for layer in self.layers[:-1]:
            h = jax.nn.silu(layer(h))
        return jax.nn.log_softmax(self.layers[-1](h))

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key, z: Code, context: Context) -> Int[Array, ""]:
        return draw_categorical(key, jnp.exp(self.log_probs(z)))

    def log_prob(self, z_new: Int[Array, ""], z: Code, context: Context) -> Scalar:
        return jnp.sum(jax.nn.one_hot(z_new, self.layers[-1].bias.shape[0]) * self.log_probs(z))

    def log_prob_score(self, z_new: Int[Array, ""], z: Code, context: Context) -> Scalar:
        return self.log_prob(z_new, z, context)


class Coded(NamedTuple):
    """An image with what the encoder made of it: mean and log standard deviation of q(z | x).

    Computed once for all that is drawn and scored with it, since the network is the larger part of
    the work.
    """

    x: Float[Array, "size size"]
    loc: Code
    log_scale: Code


class Encode(AbstractKernel):
    """q(z | x) = N(loc, scale²) of a coded image; its parameters are the network's that coded
    it.
    """

    @property
    def reparameterised(self) -> bool:
        return True

    def sample(self, key: Key, z: Coded, context: Context) -> Code:
        return z.loc + jnp.exp(z.log_scale) * jax.random.normal(key, z.loc.shape, z.loc.dtype)

    def log_prob(self, z_new: Code, z: Coded, context: Context) -> Scalar:
        noise = (z_new - z.loc) * jnp.exp(-z.log_scale)
        return jnp.sum(-0.5 * noise**2 - z.log_scale - 0.5 * np.log(2 * np.pi))


class Decode(AbstractKernel):
    """p(x | z), a continuous Bernoulli for every pixel with logits cut at ±`limit`; scores coded
    images.
    """

    network: ImageDecoder
    limit: float = eqx.field(static=True, default=LOGIT_LIMIT)

    @property
    def reparameterised(self) -> bool:
        return True

    def sample(self, key: Key, z: Code, context: Context) -> Coded:
        x = continuous_bernoulli_sample(key, self.network(z), self.limit)
        return Coded(x, jnp.zeros_like(z), jnp.zeros_like(z))

    def log_prob(self, z_new: Coded, z: Code, context: Context) -> Scalar:
        return jnp.sum(continuous_bernoulli_log_prob(z_new.x, self.network(z), self.limit))

    def mean(self, z: Code) -> Float[Array, "size size"]:
        """E[x | z], the image to show."""
        return continuous_bernoulli_mean(self.network(z), self.limit)
