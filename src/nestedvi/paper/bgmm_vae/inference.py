"""What the BGMM-VAE's inference networks say of a mini-batch, and what its generative model makes
of the answer.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.kernels.base import Context
from nestedvi.paper.bgmm_vae.model import Assign, BgmmVae, Coded, Encode, count, draw_categorical

__all__ = [
    "Latents",
    "bound",
    "cluster_of",
    "expected_lam",
    "generate",
    "infer",
    "log_joint",
    "log_proposal",
    "mean_field",
    "mean_field_lam",
]

_NO_CONTEXT = Context(None, None)
_ENCODE = Encode()


class Latents(NamedTuple):
    """One draw of everything that is not seen, for one mini-batch."""

    lam: Float[Array, " clusters"]
    c: Array
    z: Float[Array, "N dim"]


def _keys(key: Key, *shape: int) -> Key:
    return jax.random.split(key, shape)


def infer(key: Key, model: BgmmVae, coded: Coded) -> Latents:
    """λ, c, z ~ q(λ, c, z | x) for one mini-batch of coded images; z carries the encoder's
    gradient, the others none.
    """
    num = coded.x.shape[0]
    key_z, key_c, key_lam = jax.random.split(key, 3)
    z = jax.vmap(_ENCODE.sample, in_axes=(0, 0, None))(_keys(key_z, num), coded, _NO_CONTEXT)
    c = jax.vmap(model.classify.sample, in_axes=(0, 0, None))(_keys(key_c, num), z, _NO_CONTEXT)
    return Latents(model.proportions.sample(key_lam, c, _NO_CONTEXT), c, z)


def log_joint(model: BgmmVae, coded: Coded, latents: Latents) -> Scalar:
    """log p(x, z, c, λ) of one mini-batch."""
    lam, c, z = latents

    def each(kernel):
        return jax.vmap(kernel.log_prob, in_axes=(0, 0, None))

    log_p = model.prior.log_gamma(lam) + Assign(len(c)).log_prob(c, lam, _NO_CONTEXT)
    return log_p + jnp.sum(
        each(model.mixture)(z, c, _NO_CONTEXT) + each(model.decode)(coded, z, _NO_CONTEXT)
    )


def log_proposal(model: BgmmVae, coded: Coded, latents: Latents) -> Scalar:
    """log q(z, c, λ | x) of one mini-batch."""
    lam, c, z = latents

    def each(kernel):
        return jax.vmap(kernel.log_prob, in_axes=(0, 0, None))

    log_q = jnp.sum(each(_ENCODE)(z, coded, _NO_CONTEXT) + each(model.classify)(c, z, _NO_CONTEXT))
    return log_q + model.proportions.log_prob(lam, c, _NO_CONTEXT)


def bound(key: Key, model: BgmmVae, coded: Coded) -> Scalar:
    """One draw of log p(x, z, c, λ) − log q(z, c, λ | x), for one mini-batch: its mean is the lower
    bound.
    """
    latents = infer(key, model, coded)
    return log_joint(model, coded, latents) - log_proposal(model, coded, latents)


def expected_lam(
    key: Key, model: BgmmVae, coded: Coded, num_samples: int
) -> Float[Array, " clusters"]:
    """E[λ] under q(λ, c, z | x) of one mini-batch: the mean of q(λ | c), averaged over draws of z
    and c.
    """

    def one(key: Key) -> Float[Array, " clusters"]:
        concentration = model.proportions.concentration(
            count(infer(key, model, coded).c, model.clusters)
        )
        return concentration / jnp.sum(concentration)

    return jnp.mean(jax.vmap(one)(_keys(key, num_samples)), axis=0)


def mean_field(
    log_p: Float[Array, "N clusters"], alpha: float, start: Float[Array, "N clusters"], sweeps: int
) -> tuple[Float[Array, "N clusters"], Float[Array, " clusters"]]:
    """The mean-field posterior of c and λ of one mini-batch in the mixture, given log p(z_n | c):
    r_nc and Dir(λ)'s parameters.

    r_nc ∝ exp(E[log λ_c] + log p(z_n | c)) and Dir(α + Σ_n r_n) are updated in turn.
    """

    def sweep(_, r):
        return jax.nn.softmax(
            jax.scipy.special.digamma(alpha + jnp.sum(r, axis=0)) + log_p, axis=-1
        )

    r = jax.lax.fori_loop(0, sweeps, sweep, start)
    return r, alpha + jnp.sum(r, axis=0)


def mean_field_lam(
    key: Key, model: BgmmVae, coded: Coded, num_samples: int, sweeps: int = 30
) -> Float[Array, " clusters"]:
    """E[λ] of the mean-field posterior, with z from the encoder: a refinement at test time without
    q(c | z) and q(λ | c).
    """

    def draw(k):
        return jax.vmap(_ENCODE.sample, in_axes=(0, 0, None))(
            _keys(k, coded.x.shape[0]), coded, _NO_CONTEXT
        )

    z = jax.vmap(draw)(_keys(key, num_samples))
    log_p = jnp.mean(jax.vmap(jax.vmap(model.mixture.log_probs))(z), axis=0)
    _, concentration = mean_field(
        log_p, model.alpha, jnp.full_like(log_p, 1 / model.clusters), sweeps
    )
    return concentration / jnp.sum(concentration)


def cluster_of(model: BgmmVae, coded: Coded) -> Int[Array, ""]:
    """The likeliest cluster of one coded image, at the mean of its code."""
    return jnp.argmax(model.classify.log_probs(coded.loc))


def generate(
    key: Key, model: BgmmVae, lam: Float[Array, " clusters"], num: int
) -> Float[Array, "num size size"]:
    """Images of the generative model for given proportions: c ~ Cat(λ), z ~ p(z | c), and the mean
    of p(x | z).
    """
    key_c, key_z = jax.random.split(key)
    c = draw_categorical(key_c, lam, (num,))
    z = jax.vmap(model.mixture.sample, in_axes=(0, 0, None))(_keys(key_z, num), c, _NO_CONTEXT)
    return jax.vmap(model.decode.mean)(z)
