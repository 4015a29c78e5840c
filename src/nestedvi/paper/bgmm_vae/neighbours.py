"""What the other images of a mini-batch tell of an image's cluster: mini-batches differ in their
proportions λ.

The paper's terms of the BGMM-VAE's objective look at images one by one, or at assignments without
images. Here the images of a mini-batch are seen together. How it enters the objective is decided
there.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Scalar
from nestedvi.paper.bgmm_vae.model import BgmmVae
from nestedvi.sampler.level import hold

__all__ = ["log_own_batch", "neighbour_information", "neighbour_kl"]


def log_own_batch(
    rho: Float[Array, "batches N clusters"], pi_c: Float[Array, " clusters"], alpha: float
) -> Float[Array, "batches N"]:
    """log q(b | z) of the mini-batch b that each image came from, among all of them; `rho` are its
    clusters' probabilities.

    q(b | z) ∝ Σ_c ρ(c | z) λ_bc / π_c(c), where λ_b = E[λ | the other images of b] is the
    Dirichlet's with ρ for counts. Were clusters known, it would be exact. Of every mini-batch the
    image at the same place is left out, so that none has one more.
    """
    num, clusters = rho.shape[1:]
    others = jnp.sum(rho, axis=1, keepdims=True) - rho
    lam = (alpha + others) / (clusters * alpha + num - 1)
    log_ratio = jnp.log(jnp.einsum("bnc,dnc->bnd", rho, lam / pi_c))
    return jnp.diagonal(jax.nn.log_softmax(log_ratio, axis=-1), axis1=0, axis2=2).T


def neighbour_kl(model: BgmmVae, z: Float[Array, "batches N dim"]) -> Scalar:
    """KL(p̂(b, x) q(z|x) ‖ p̂(x) q(z|x) q(b|z)) = −E[log q(b|z)] at exact draws from the left, one
    for every image, less log B.

    ρ(c | z) is the posterior of the mixture, so that the encoder and the mixture learn codes whose
    clusters tell mini-batches apart; π_c is held. It is minus a lower bound of the information that
    z has about b: zero where clusters say nothing.
    """
    log_pi_c = hold(jax.nn.log_softmax(model.pi_c_logits))
    rho = jax.vmap(jax.vmap(lambda z: jax.nn.softmax(log_pi_c + model.mixture.log_probs(z))))(z)
    return -jnp.log(float(z.shape[0])) - jnp.mean(
        log_own_batch(rho, jnp.exp(log_pi_c), model.alpha)
    )


def neighbour_information(model: BgmmVae, x: Float[Array, "batches N size size"]) -> Scalar:
    """I(c; c'), in nats, of the clusters of two images of one mini-batch: how far mini-batches
    differ in them.

    It needs no labels. Of all partitions into as many parts, the classes by which mini-batches were
    drawn have the most: a cluster that joins two classes loses what told them apart, and splitting
    another class gains nothing.
    """

    def pairs(x: Float[Array, "N size size"]) -> Float[Array, "clusters clusters"]:
        probs = jnp.exp(jax.vmap(lambda x: model.classify.log_probs(model.code(x).loc))(x))
        total = jnp.sum(probs, axis=0)
        return jnp.outer(total, total) - probs.T @ probs

    joint = jnp.mean(jax.lax.map(pairs, x, batch_size=50), axis=0)
    joint = joint / jnp.sum(joint)
    single = jnp.sum(joint, axis=0)
    return jnp.sum(jax.scipy.special.rel_entr(joint, jnp.outer(single, single)))
