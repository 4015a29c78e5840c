"""What moves a particle. A kernel is a conditional density q(z' | z); a transition is what happens
at one level.

Everything is written for one particle. `move` draws, `score` evaluates log q_k and log r_{k-1} of a
given move; they are apart so that the sampler can decide, in one place, which of the two sees live
parameters. The only gradient a kernel cuts is that of its own draws where they are not
reparameterised.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nestedvi._types import Key, Particle, Scalar
from nestedvi.arguments import check_key, check_whole
from nestedvi.densities.base import AbstractSampleable
from nestedvi.errors import MissingScoreError

__all__ = [
    "AbstractFlow",
    "AbstractKernel",
    "AbstractTransition",
    "Context",
    "Independent",
    "Scores",
    "Transition",
    "check_stacked",
    "own_density",
    "stack",
]


class Context(NamedTuple):
    """What a level tells its transition: θ_k (its β, its observation, …) and z ↦ log γ_k(z), where
    that exists.
    """

    theta: PyTree
    log_gamma: Callable[[Particle], Scalar] | None


def own_density(context: Context, who: str) -> Callable[[Particle], Scalar]:
    """z ↦ log γ_k(z), for moves that evaluate it where they like; an error in the name of `who`
    where there is none.
    """
    if context.log_gamma is None:
        raise ValueError(
            f"{who} needs a density γ_k that can be evaluated on its own; this path only gives"
            " increments (its support grows). Use a fixed-support path, or move only what the"
            " increment knows."
        )
    return context.log_gamma


class Scores(NamedTuple):
    """The densities of a move. `log_q_score` is log q̃_k, the part of log q_k that was drawn
    without reparameterisation.
    """

    log_q: Scalar
    log_r: Scalar
    log_q_score: Scalar


class AbstractKernel(eqx.Module):
    """A conditional density q(z' | z), used as forward or as reverse kernel by its role.

    Example:
        ```python
        class Step(nvi.AbstractKernel):
            # z' ~ N(z, scale²)

            log_scale: jax.Array

            @property
            def reparameterised(self):
                return True

            def sample(self, key, z, context):
                return z + jnp.exp(self.log_scale) * jax.random.normal(key, z.shape)

            def log_prob(self, z_new, z, context):
                return jnp.sum(dist.Normal(z, jnp.exp(self.log_scale)).log_prob(z_new))

        step = Step(jnp.zeros(2))
        step.sample(jax.random.key(0), jnp.ones(2), None)
        ```
    """

    @property
    @abc.abstractmethod
    def reparameterised(self) -> bool:
        """True if every draw carries the gradient of the parameters; otherwise `log_prob_score`
        must be given.
        """

    @property
    def extends(self) -> bool:
        """Whether z' holds all of z and something new: such a move needs no reverse kernel, since z
        can be read off z'.
        """
        return False

    @abc.abstractmethod
    def sample(self, key: Key, z: Particle, context: Context) -> Particle:
        """One draw z' ~ q(· | z); what is not reparameterised must not carry a gradient
        (`jax.lax.stop_gradient`).
        """

    @abc.abstractmethod
    def log_prob(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        """log q(z' | z)."""

    def log_prob_score(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        """log q̃(z̃ | z), the non-reparameterised part; kernels that are not reparameterised must
        say what it is.
        """
        if self.reparameterised:
            return jnp.zeros(())
        raise MissingScoreError(
            f"{type(self).__name__} is not reparameterised, so its parameters get no pathwise"
            " gradient, and it does not define log_prob_score: its gradient would silently be"
            " zero. Define log_prob_score (for a kernel without any reparameterised part, return"
            " log_prob)."
        )


class AbstractTransition(eqx.Module):
    """What happens to one particle at one level.

    Example:
        ```python
        move = nvi.RandomWalk(step_size=0.5, steps=3)
        assert isinstance(move, nvi.AbstractTransition)
        context = nvi.kernels.Context(None, lambda z: -0.5 * jnp.sum(z**2))
        z, aux = move.move(jax.random.key(0), jnp.ones(2), context)
        move.score(z, jnp.ones(2), aux, context).log_r
        ```
    """

    @abc.abstractmethod
    def move(self, key: Key, z_prev: Particle, context: Context) -> tuple[Particle, Any]:
        """z_k, and whatever scoring it would otherwise compute again."""

    @abc.abstractmethod
    def score(self, z: Particle, z_prev: Particle, aux: Any, context: Context) -> Scores:
        """log q_k(z_k | z_{k-1}), log r_{k-1}(z_{k-1} | z_k) and log q̃_k."""

    @abc.abstractmethod
    def reverse_move(self, key: Key, z: Particle, context: Context) -> tuple[Particle, Any]:
        """z_{k-1} ~ r_{k-1}(· | z_k), for upper bounds; an error where it cannot be drawn."""

    @abc.abstractmethod
    def groups(self) -> PyTree:
        """A pytree shaped like the transition that names each leaf's group: "forward" (φ̂),
        "reverse" (φ̌) or "fixed".
        """

    @property
    @abc.abstractmethod
    def reparameterised(self) -> bool:
        """True if every draw carries the gradient of the parameters."""

    @property
    @abc.abstractmethod
    def holdable(self) -> bool:
        """Whether `score` may be evaluated with other parameters than `move` (sticking the
        landing).
        """


class Transition(AbstractTransition):
    """A forward kernel q_k with a reverse kernel r_{k-1}, or with none (growing support: log r =
    0).

    Args:
        forward: q_k.
        reverse: r_{k-1}; None where the forward kernel extends the particle.

    Example:
        ```python
        key_forward, key_reverse = jax.random.split(jax.random.key(0))
        nvi.Transition(
            nvi.ResidualGaussian(2, key=key_forward), nvi.ResidualGaussian(2, key=key_reverse)
        )
        ```
    """

    forward: AbstractKernel
    reverse: AbstractKernel | None = None

    def move(self, key: Key, z_prev: Particle, context: Context) -> tuple[Particle, None]:
        return self.forward.sample(key, z_prev, context), None

    def score(self, z: Particle, z_prev: Particle, aux: None, context: Context) -> Scores:
        log_q = self.forward.log_prob(z, z_prev, context)
        log_r = (
            jnp.zeros_like(log_q)
            if self.reverse is None
            else self.reverse.log_prob(z_prev, z, context)
        )
        return Scores(log_q, log_r, self.forward.log_prob_score(z, z_prev, context))

    def reverse_move(self, key: Key, z: Particle, context: Context) -> tuple[Particle, None]:
        if self.reverse is None:
            raise NotImplementedError(
                "A transition without a reverse kernel cannot be run backwards."
            )
        return self.reverse.sample(key, z, context), None

    def groups(self) -> PyTree:
        return jax.tree_util.tree_map_with_path(lambda at, _: at[0].name, self)

    @property
    def reparameterised(self) -> bool:
        return self.forward.reparameterised

    @property
    def holdable(self) -> bool:
        return True


class AbstractFlow(AbstractTransition):
    """A deterministic, invertible move whose `aux` is log |det J|: log q = −log |det J|, log r = 0,
    every array learnable.
    """

    def score(self, z: Particle, z_prev: Particle, aux: Scalar, context: Context) -> Scores:
        return Scores(-aux, jnp.zeros_like(aux), jnp.zeros_like(aux))

    def groups(self) -> PyTree:
        return jax.tree.map(lambda x: "forward" if eqx.is_inexact_array(x) else "fixed", self)

    @property
    def reparameterised(self) -> bool:
        return True

    @property
    def holdable(self) -> bool:
        return False


class Independent(AbstractKernel):
    """q(z' | z) = q(z'): a proposal that ignores where the particle was."""

    density: AbstractSampleable

    @property
    def reparameterised(self) -> bool:
        return self.density.reparameterised

    def sample(self, key: Key, z: Particle, context: Context) -> Particle:
        z_new = self.density.sample(key)
        return z_new if self.reparameterised else jax.lax.stop_gradient(z_new)

    def log_prob(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return self.density.log_gamma(z_new) - self.density.log_Z

    def log_prob_score(self, z_new: Particle, z: Particle, context: Context) -> Scalar:
        return jnp.zeros(()) if self.reparameterised else self.log_prob(z_new, z, context)


def check_stacked(module: Any, who: str, otherwise: str) -> None:
    """Raises unless all arrays of `module` share one leading axis, as `stack` makes them."""
    shapes = [x.shape for x in jax.tree.leaves(eqx.filter(module, eqx.is_array))]
    if not shapes or len({shape[:1] for shape in shapes}) > 1 or () in shapes:
        got = ", ".join(str(shape) for shape in shapes) or "no arrays"
        raise ValueError(
            f"{who}(…) holds transitions that are stacked: every array of the"
            f" {type(module).__name__} has one leading axis, with a row for each; got shapes {got}."
            f" Stack them with nvi.stack(key, make, num). {otherwise}."
        )


def stack(key: Key, make: Callable[[Key], Any], num: int) -> Any:
    """`num` modules of one class, made with keys of their own, parameters stacked on a leading
    axis.

    Args:
        key: split into one for each module.
        make: key -> module.
        num: how many.

    Example:
        ```python
        kernels = nvi.stack(jax.random.key(0), lambda key: nvi.ResidualGaussian(2, key=key), 7)
        jax.tree.leaves(kernels)[0].shape[0]  # 7
        ```
    """
    check_key(key)
    return eqx.filter_vmap(make)(jax.random.split(key, check_whole("num", num)))
