"""The posterior that the BGMM-VAE's inference networks give for a mini-batch, and images that its
generative model draws. Nothing is learned here.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, Scalar
from nestedvi.kernels.base import AbstractKernel, Context
from nestedvi.paper.bgmm_vae.model import BgmmVae
from nestedvi.paper.bgmm_vae.parts import Assign, Coded, Encode, count, draw_categorical

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


def _sample_each(key: Key, kernel: AbstractKernel, given: Any, num: int) -> Any:
    """One draw of the kernel for each of `num` things that it is given."""
    return jax.vmap(kernel.sample, in_axes=(0, 0, None))(
        jax.random.split(key, num), given, _NO_CONTEXT
    )


def _score_each(kernel: AbstractKernel, new: Any, given: Any) -> Float[Array, " N"]:
    """The kernel's log density of each, given its own."""
    return jax.vmap(kernel.log_prob, in_axes=(0, 0, None))(new, given, _NO_CONTEXT)


def infer(key: Key, model: BgmmVae, coded: Coded) -> Latents:
    """λ, c, z ~ q(λ, c, z | x) for one mini-batch of coded images; z carries the encoder's
    gradient, the others none.
    """
    num = coded.x.shape[0]
    key_z, key_c, key_lam = jax.random.split(key, 3)
    z = _sample_each(key_z, _ENCODE, coded, num)
    c = _sample_each(key_c, model.classify, z, num)
    return Latents(model.proportions.sample(key_lam, c, _NO_CONTEXT), c, z)


def log_joint(model: BgmmVae, coded: Coded, latents: Latents) -> Scalar:
    """log p(x, z, c, λ) of one mini-batch."""
    lam, c, z = latents
    log_p = model.prior.log_gamma(lam) + Assign(len(c)).log_prob(c, lam, _NO_CONTEXT)
    return log_p + jnp.sum(_score_each(model.mixture, z, c) + _score_each(model.decode, coded, z))


def log_proposal(model: BgmmVae, coded: Coded, latents: Latents) -> Scalar:
    """log q(z, c, λ | x) of one mini-batch."""
    lam, c, z = latents
    log_q = jnp.sum(_score_each(_ENCODE, z, coded) + _score_each(model.classify, c, z))
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

    return jnp.mean(jax.vmap(one)(jax.random.split(key, num_samples)), axis=0)


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
        return _sample_each(k, _ENCODE, coded, coded.x.shape[0])

    z = jax.vmap(draw)(jax.random.split(key, num_samples))
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
    z = _sample_each(key_z, model.mixture, c, num)
    return jax.vmap(model.decode.mean)(z)
