"""Levels with exact samples: both sides are normalised densities, and at least one can be drawn
from.

D_f(target ‖ proposal) = E_proposal[f(target/proposal)], or with samples from the other side the
same divergence written with f*(u) = u f(1/u): D_f(target ‖ proposal) = D_{f*}(proposal ‖ target).
No particle is weighted and nothing is normalised by estimates, so the gradients are unbiased.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from nestedvi._types import Key, LogWeights, Particle, Scalar
from nestedvi.densities.base import AbstractSampleable, as_sampleable
from nestedvi.divergences.f import AbstractDivergence, ForwardKL, ReverseKL, get_divergence
from nestedvi.errors import UnknownNameError
from nestedvi.kernels.joint import Joint

__all__ = ["ConjugateDivergence", "ExactLevel", "conjugate"]


class ConjugateDivergence(AbstractDivergence):
    """f*(u) = u f(1/u), that is F*(l) = e^l F(−l): the same divergence with its sides exchanged."""

    original: AbstractDivergence

    label = "conjugate"
    constant_slope = False
    prefers_score = False

    def value(self, log_ratio: Scalar) -> Scalar:
        return jnp.exp(log_ratio) * self.original.value(-log_ratio)

    def slope(self, log_ratio: LogWeights) -> LogWeights:
        f = jax.vmap(self.original.value)(-log_ratio)
        return jnp.exp(log_ratio) * (f - self.original.slope(-log_ratio))

    def landing_slope(self, log_ratio: LogWeights) -> LogWeights:
        return jnp.exp(log_ratio) * self.original.landing_slope(-log_ratio)


def conjugate(divergence: AbstractDivergence) -> AbstractDivergence:
    """The divergence with its sides exchanged; the two KLs are each other's."""
    if isinstance(divergence, ReverseKL):
        return ForwardKL()
    if isinstance(divergence, ForwardKL):
        return ReverseKL()
    return ConjugateDivergence(divergence)


class ExactLevel(eqx.Module):
    """D_f(target ‖ proposal) for two normalised densities on one space, with exact samples from
    `sample_from`.

    Both sides may have parameters; what is wrapped in `nvi.hold` is not optimised.
    """

    target: AbstractSampleable
    proposal: AbstractSampleable
    sample_from: Literal["target", "proposal"] = eqx.field(static=True, default="proposal")

    def __init__(self, target, proposal, sample_from: str = "proposal"):
        if sample_from not in ("target", "proposal"):
            raise UnknownNameError("side", sample_from, ["target", "proposal"])
        self.target, self.proposal = as_sampleable(target), as_sampleable(proposal)
        self.sample_from = sample_from  # type: ignore[assignment]

    def draw(self, key: Key, num_samples: int) -> Particle:
        """Exact samples from one side, on a leading axis."""
        return jax.vmap(self._drawn.sample)(jax.random.split(key, num_samples))

    def surrogate(
        self,
        key: Key,
        divergence: str | AbstractDivergence,
        num_samples: int,
        *,
        baseline: bool = True,
    ) -> tuple[Scalar, Scalar]:
        """The scalar to differentiate, and the unbiased estimate of the divergence."""
        return self.surrogate_at(self.draw(key, num_samples), divergence, baseline=baseline)

    def surrogate_at(
        self, samples: Particle, divergence: str | AbstractDivergence, *, baseline: bool = True
    ) -> tuple[Scalar, Scalar]:
        """`surrogate` for samples that are there already: exact draws from `sample_from`, with the
        gradient of the draw where it is reparameterised. A mini-batch of data completed by a kernel
        (`Joint.complete`) is such a set."""
        f, drawn, other = get_divergence(divergence), self._drawn, self.target
        if self.sample_from == "target":
            other, f = self.proposal, conjugate(f)
        if not (drawn.reparameterised or isinstance(drawn, Joint)):
            # Score function: the draw itself carries no gradient. A joint cuts its own parts.
            samples = stop_gradient(samples)
        log_drawn = jax.vmap(drawn.log_gamma)(samples) - drawn.log_Z
        log_other = jax.vmap(other.log_gamma)(samples) - other.log_Z
        log_ratio = stop_gradient(log_other - log_drawn)
        num_samples = log_ratio.shape[0]
        value, slope = jax.vmap(f.value)(log_ratio), f.slope(log_ratio)
        signal = value - slope
        control = (
            (jnp.sum(signal) - signal) / max(num_samples - 1, 1)
            if baseline and num_samples > 1
            else 0.0
        )
        score = jnp.mean((value - control) * self._log_score(drawn, samples))
        return score + jnp.mean(slope * (log_other - log_drawn)), jnp.mean(value)

    @property
    def _drawn(self) -> AbstractSampleable:
        return self.target if self.sample_from == "target" else self.proposal

    @staticmethod
    def _log_score(drawn: AbstractSampleable, samples) -> LogWeights:
        if isinstance(drawn, Joint):
            return jax.vmap(drawn.log_score)(samples)
        log_q = jax.vmap(drawn.log_gamma)(samples) - drawn.log_Z
        return jnp.zeros_like(log_q) if drawn.reparameterised else log_q
