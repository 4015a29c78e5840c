"""Resampling: which ancestors survive, and what weights they leave with.

A scheme is a deterministic function from uniforms and normalised weights to ancestors, so that
tests can enumerate it. `Resampling` adds the rule for when; both keep proper weighting: after
resampling every weight is the mean of the old ones. It refuses to know what a particle is.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi._types import Ancestors, Flag, Key, LogWeights, Uniforms, Weights
from nestedvi.devices import everywhere, over_particles
from nestedvi.errors import UnknownNameError
from nestedvi.particles.weights import (
    ess,
    inverse_cdf,
    log_Z_hat,
    normalise,
    search_sorted,
    systematic,
)

__all__ = [
    "SCHEMES",
    "AbstractScheme",
    "Multinomial",
    "Particles",
    "Resampling",
    "Residual",
    "Stratified",
    "Systematic",
    "take",
]


class Particles(NamedTuple):
    """S weighted particles: z and the path's statistics of z with a leading particle axis, and log
    w.
    """

    z: PyTree
    stats: PyTree
    log_w: LogWeights


class AbstractScheme(eqx.Module):
    """S ancestors with E[number of copies of s] = S w̄_s."""

    @abc.abstractmethod
    def ancestors(self, u: Uniforms, w_bar: Weights) -> Ancestors:
        """Ancestor indices from S independent uniforms on [0, 1)."""


class Multinomial(AbstractScheme):
    """S independent draws from w̄."""

    def ancestors(self, u: Uniforms, w_bar: Weights) -> Ancestors:
        return inverse_cdf(u, w_bar)


class Stratified(AbstractScheme):
    """One draw in each of S equal strata of the cumulative weights."""

    def ancestors(self, u: Uniforms, w_bar: Weights) -> Ancestors:
        num = w_bar.shape[0]
        return inverse_cdf((jnp.arange(num) + u) / num, w_bar)


class Systematic(AbstractScheme):
    """One uniform shifts a comb of S equally spaced points."""

    def ancestors(self, u: Uniforms, w_bar: Weights) -> Ancestors:
        return systematic(u[0], w_bar, w_bar.shape[0])


class Residual(AbstractScheme):
    """⌊S w̄_s⌋ copies for certain, the rest by multinomial draws from what is left over."""

    def ancestors(self, u: Uniforms, w_bar: Weights) -> Ancestors:
        num = w_bar.shape[0]
        # S w̄ that is a whole number up to rounding must count as that number, or a copy is lost.
        scaled = num * w_bar
        sure = jnp.floor(scaled * (1 + 8 * jnp.finfo(w_bar.dtype).eps))
        ends = jnp.cumsum(sure)
        slots = jnp.arange(num)
        certain = search_sorted(ends, slots)
        rest = jnp.maximum(scaled - sure, 0.0)
        rest = jnp.where(jnp.sum(rest) > 0, rest, w_bar)
        drawn = inverse_cdf(u, rest / jnp.sum(rest))
        return jnp.where(slots < ends[-1], jnp.minimum(certain, num - 1), drawn)


SCHEMES: dict[str, type[AbstractScheme]] = {
    "multinomial": Multinomial,
    "stratified": Stratified,
    "systematic": Systematic,
    "residual": Residual,
}


def take(particles: Particles, ancestors: Ancestors, log_w: LogWeights) -> Particles:
    """The chosen particles with new weights. Everything in a `Particles` has a particle axis,
    nothing else is gathered.
    """

    def pick(x):
        return jnp.take(x, ancestors, axis=0)

    chosen = Particles(jax.tree.map(pick, particles.z), jax.tree.map(pick, particles.stats), log_w)
    return over_particles(chosen)


class Resampling(eqx.Module):
    """A scheme and the rule for when: `always`, `never`, or when ESS falls under a share of the
    particles.

    Args:
        scheme: "systematic", "stratified", "multinomial", "residual", or an `AbstractScheme`.
        when: "always", "never", or a share of the particles below which the ESS must fall.

    Example:
        ```python
        nvi.Resampling("systematic", when=0.5)
        ```
    """

    scheme: AbstractScheme
    when: str | float = eqx.field(static=True)

    def __init__(self, scheme: str | AbstractScheme = "systematic", when: str | float = "always"):
        if isinstance(scheme, str):
            if scheme not in SCHEMES:
                raise UnknownNameError("resampling scheme", scheme, SCHEMES)
            scheme = SCHEMES[scheme]()
        if not isinstance(scheme, AbstractScheme):
            raise UnknownNameError("resampling scheme", scheme, SCHEMES)
        if isinstance(when, str):
            if when not in ("always", "never"):
                raise UnknownNameError(
                    "resampling rule", when, ["always", "never", "<a number in (0, 1]>"]
                )
        elif not 0.0 < float(when) <= 1.0:
            raise ValueError(f"An ESS threshold is a share of the particles in (0, 1]; got {when}.")
        self.scheme, self.when = scheme, when if isinstance(when, str) else float(when)

    def apply(self, u: Uniforms, particles: Particles) -> tuple[Particles, Ancestors, Flag]:
        """Resampled particles, their ancestors and whether resampling took place; deterministic in
        `u`.
        """
        num = particles.log_w.shape[0]
        stay = jnp.arange(num)
        if self.when == "never":
            return particles, stay, jnp.array(False)
        particles = particles._replace(log_w=everywhere(particles.log_w))
        ancestors = self.scheme.ancestors(u, normalise(particles.log_w)).astype(stay.dtype)
        level = jnp.broadcast_to(log_Z_hat(particles.log_w), (num,))
        if self.when == "always":
            return take(particles, ancestors, level), ancestors, jnp.array(True)
        go = ess(particles.log_w) < float(self.when) * num
        ancestors = jnp.where(go, ancestors, stay)
        return take(particles, ancestors, jnp.where(go, level, particles.log_w)), ancestors, go

    def noise(self, keys: Key) -> Any:
        """What `__call__` needs at each of several levels, from a key a level.

        Systematic resampling needs one uniform a level: drawing them together keeps a generator
        call out of the loop over levels. For other schemes the keys themselves are passed on, so
        that memory does not grow with the number of levels.
        """
        return jax.vmap(jax.random.uniform)(keys) if isinstance(self.scheme, Systematic) else keys

    def __call__(self, noise: Any, particles: Particles) -> tuple[Particles, Ancestors, Any]:
        """`apply` with one level's share of `noise`."""
        shape, dtype = particles.log_w.shape, particles.log_w.dtype
        if self.when == "never":
            u = jnp.zeros(shape, dtype)
        elif isinstance(self.scheme, Systematic):
            u = jnp.broadcast_to(noise.astype(dtype), shape)
        else:
            u = jax.random.uniform(noise, shape, dtype)
        return self.apply(u, particles)
