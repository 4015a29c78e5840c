"""What trains the BGMM-VAE: nested KLs with exact samples and a single-sample bound, or reweighted
wake-sleep.

    KL(p(λ) p(c|λ) ‖ π_c(c) q(λ|c)) + KL(π_c(c) p(z|c) ‖ π_z(z) q(c|z))
        + KL(p̂(x) q(z|x) ‖ π_z(z) p(x|z))

The first two are minimised over π and q, the third over q; μ, τ and the decoder maximise the bound.
These are the paper's. A fourth may be added, which asks z what mini-batch b it is from: KL(p̂(b, x)
q(z|x) ‖ p̂(x) q(z|x) q(b|z)). The decoder's part of the bound is E[log p(x|z)], which the third KL
contains with the opposite sign: leaving p(x|z) free there gives the decoder that gradient, and one
pass through the networks serves both. It refuses to know optimisers, and has no defaults: settings
are in `config`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.empirical import Empirical
from nestedvi.divergences.exact import ExactLevel
from nestedvi.divergences.wake import wake
from nestedvi.errors import UnknownNameError
from nestedvi.kernels.joint import Joint
from nestedvi.paper.bgmm_vae.inference import infer, log_joint, log_proposal, mean_field
from nestedvi.paper.bgmm_vae.model import BgmmVae
from nestedvi.paper.bgmm_vae.neighbours import neighbour_kl
from nestedvi.paper.bgmm_vae.parts import Assign, Coded, Encode, draw_categorical
from nestedvi.particles.weights import normalise
from nestedvi.sampler.level import hold

__all__ = ["NestedKLs", "StepRecord", "WakeSleep", "image_code_pairs"]

Images = Float[Array, "batches N size size"]

_ENCODE = Encode()
# From q(c|z), which is near: more change little.
_SWEEPS = 5


class StepRecord(NamedTuple):
    """What one step reports, per mini-batch: estimates of the divergences (NaN where there is none)
    and a bound per image.
    """

    first: Scalar
    second: Scalar
    third: Scalar
    neighbours: Scalar
    bound: Scalar


def image_code_pairs(coded: Coded) -> Joint:
    """p̂(x) q(z|x) on pairs (z, x), p̂ the images at hand."""
    return Joint(Empirical(coded), _ENCODE, flipped=True)


@dataclass(frozen=True, kw_only=True)
class NestedKLs:
    """The nested objective.

    - `num_prior`: N of the first two KLs, which need no images and may use more than a mini-batch
      has.
    - `pi_c_from`: "both" gives π_c the gradients of the first two KLs, as printed; "first" holds it
      in the second.
    - `mixture_update`: "sample" trains μ, τ with a draw c ~ q(c|z), as printed; "probabilities"
      with the expectation over q(c|z); "mean-field" with the mean-field posterior of c in its
      mini-batch, so that what an image's neighbours are counts.
    - `intermediate`: π_z is a planar "flow", as printed, or the "mixture" Σ_c π_c(c) p(z|c), whose
      second KL can be zero.
    - `neighbours`: the weight of the fourth KL, which is not the paper's; see `neighbour_kl`.
    """

    num_prior: int
    pi_c_from: Literal["first", "both"]
    mixture_update: Literal["sample", "probabilities", "mean-field"]
    intermediate: Literal["flow", "mixture"]
    neighbours: float

    def __post_init__(self) -> None:
        if not 0 <= self.neighbours < float("inf"):
            raise ValueError(
                f"The weight of the neighbours' KL is a number from 0 on; got {self.neighbours}."
            )
        if self.num_prior < 1:
            raise ValueError(
                f"The first two KLs need at least one assignment; got num_prior = {self.num_prior}."
            )
        if self.pi_c_from not in ("first", "both"):
            raise UnknownNameError("source of π_c's gradient", self.pi_c_from, ["first", "both"])
        updates = ["sample", "probabilities", "mean-field"]
        if self.mixture_update not in updates:
            raise UnknownNameError("update of the mixture", self.mixture_update, updates)
        if self.intermediate not in ("flow", "mixture"):
            raise UnknownNameError(
                "intermediate density π_z", self.intermediate, ["flow", "mixture"]
            )

    def first(self, model: BgmmVae) -> ExactLevel:
        """KL(p(λ) p(c|λ) ‖ π_c(c) q(λ|c)) on (λ, c_{1:N}); the left side has nothing to learn."""
        left = Joint(model.prior, Assign(self.num_prior))
        right = Joint(model.pi_c(self.num_prior), model.proportions, flipped=True)
        return ExactLevel(left, right, sample_from="target")

    def second(self, model: BgmmVae) -> ExactLevel:
        """KL(π_c(c) p(z|c) ‖ π_z(z) q(c|z)) on one pair (c, z); for N of them it is N times
        that.
        """
        pi_c = model.pi_c() if self.pi_c_from == "both" else hold(model.pi_c())
        left = Joint(pi_c, hold(model.mixture))
        return ExactLevel(
            left, Joint(self.pi_z(model), model.classify, flipped=True), sample_from="target"
        )

    def pi_z(self, model: BgmmVae) -> AbstractSampleable:
        """The intermediate density of codes; the mixture has nothing of its own to learn."""
        return model.pi_z if self.intermediate == "flow" else hold(model.marginal)

    def third(self, model: BgmmVae, coded: Coded) -> ExactLevel:
        """KL(p̂(x) q(z|x) ‖ π_z(z) p(x|z)) on one pair (z, x), p̂ the images at hand; p(x|z) is
        free, for the bound.
        """
        return ExactLevel(
            Joint(hold(self.pi_z(model)), model.decode),
            image_code_pairs(coded),
            sample_from="proposal",
        )

    def mixture(self, key: Key, model: BgmmVae, z: Float[Array, "batches N dim"]) -> Scalar:
        """−E[log p(z|c)], the part of the bound that μ and τ enter, at codes and assignments that
        are held.
        """
        z, classify = hold(z), hold(model.classify)
        log_p = jax.vmap(jax.vmap(model.mixture.log_probs))(z)
        probs = jnp.exp(jax.vmap(jax.vmap(classify.log_probs))(z))
        if self.mixture_update == "sample":
            c = jax.vmap(jax.vmap(draw_categorical))(jax.random.split(key, z.shape[:2]), probs)
            probs = jax.nn.one_hot(c, model.clusters)
        if self.mixture_update == "mean-field":
            probs, _ = jax.vmap(lambda l, r: mean_field(l, model.alpha, r, _SWEEPS))(
                hold(log_p), probs
            )
        return -jnp.mean(jnp.sum(probs * log_p, axis=-1))

    def surrogate(self, key: Key, model: BgmmVae, x: Images) -> tuple[Scalar, StepRecord]:
        """The scalar to differentiate for one iteration's mini-batches, and what to report of
        it.
        """
        num_batches = x.shape[0]
        key_first, key_second, key_third, key_c = jax.random.split(key, 4)
        first, kl_first = self.first(model).surrogate(key_first, "forward-kl", num_batches)
        second, kl_second = self.second(model).surrogate(
            key_second, "forward-kl", num_batches * self.num_prior
        )
        images = x.reshape(-1, *x.shape[2:])
        coded = jax.vmap(model.code)(images)
        # Every image of the mini-batches once, instead of draws from them.
        samples = jax.vmap(image_code_pairs(coded).complete)(
            jax.random.split(key_third, len(images)), coded
        )
        third, kl_third = self.third(model, coded).surrogate_at(samples, "reverse-kl")
        z = samples[0].reshape(*x.shape[:2], -1)
        total = first + self.num_prior * second + third + self.mixture(key_c, model, z)
        fourth = jnp.full((), jnp.nan)
        if self.neighbours:
            fourth = neighbour_kl(model, z)
            total = total + self.neighbours * fourth
        # p̂(x) is no density on images: its constant is left out of what is reported.
        kl_third = kl_third + np.log(len(images))
        return total, StepRecord(kl_first, self.num_prior * kl_second, kl_third, fourth, -kl_third)


@dataclass(frozen=True, kw_only=True)
class WakeSleep:
    """Reweighted wake-sleep on (λ, c_{1:N}, z_{1:N}), `num_samples` of them a mini-batch, weighted
    jointly.

    `model_gradient`: "all" sums the generative model's gradient over all samples with their
    weights; "one" takes it at one sample drawn by weight. Both have the same mean, and the second
    costs the decoder less than half of the work.
    """

    num_samples: int
    model_gradient: Literal["all", "one"]

    def __post_init__(self) -> None:
        if self.num_samples < 2:
            raise ValueError(
                f"With one sample every weight is one; got num_samples = {self.num_samples}, at"
                " least 2 are needed."
            )
        if self.model_gradient not in ("all", "one"):
            raise UnknownNameError(
                "samples of the model's gradient", self.model_gradient, ["all", "one"]
            )

    def surrogate(self, key: Key, model: BgmmVae, x: Images) -> tuple[Scalar, StepRecord]:
        """The scalar to differentiate for one iteration's mini-batches, and what to report of
        it.
        """

        def one(key: Key, coded: Coded) -> tuple[Scalar, Scalar]:
            key_latents, key_pick = jax.random.split(key)
            keys = jax.random.split(key_latents, self.num_samples)
            latents = hold(jax.vmap(lambda k: infer(k, model, coded))(keys))

            def score(fn, model):
                return jax.vmap(lambda h: fn(model, coded, h))(latents)

            log_q = score(log_proposal, model)
            if self.model_gradient == "all":
                return wake(score(log_joint, model), log_q)
            log_p = score(log_joint, hold(model))
            surrogate, log_Z_hat = wake(log_p, log_q)
            pick = draw_categorical(key_pick, normalise(hold(log_p - log_q)))
            return (
                surrogate - log_joint(model, coded, jax.tree.map(lambda a: a[pick], latents)),
                log_Z_hat,
            )

        coded = jax.vmap(jax.vmap(model.code))(x)
        surrogate, log_Z_hat = jax.vmap(one)(jax.random.split(key, x.shape[0]), coded)
        nothing = jnp.full((), jnp.nan)
        per_image = 1.0 / x.shape[1]
        return per_image * jnp.mean(surrogate), StepRecord(
            nothing, nothing, nothing, nothing, per_image * jnp.mean(log_Z_hat)
        )
