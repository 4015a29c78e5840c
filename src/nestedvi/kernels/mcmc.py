"""Moves that leave γ_k invariant. Their reverse kernel is the time reversal, so that

    log r_{k-1} − log q_k = log γ_k(z_{k-1}) − log γ_k(z_k),
    v_k = γ_k(z_{k-1}) / γ_{k-1}(z_{k-1}).

Only the difference exists; by convention log q = 0 and log r carries it. Draws are not
reparameterised and need no score term: v_k does not depend on z_k.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Key, Particle, Scalar
from nestedvi.kernels.base import AbstractTransition, Context, Scores, own_density

__all__ = [
    "AbstractInvariantMove",
    "Invariant",
    "RandomWalk",
    "invariant_scores",
    "metropolis",
]


def invariant_scores(z: Particle, z_prev: Particle, context: Context) -> Scores:
    """The scores of any γ_k-invariant move from z_{k-1} to z_k."""
    log_gamma = own_density(context, "An MCMC move")
    before = log_gamma(z_prev)
    # A particle that γ_k excludes has v_k = 0, wherever it went from there.
    log_r = jnp.where(jnp.isneginf(before), -jnp.inf, before - log_gamma(z))
    return Scores(jnp.zeros_like(log_r), log_r, jnp.zeros_like(log_r))


def metropolis(
    log_uniform: Array, z: Particle, log_z: Array, proposal: Particle, log_proposal: Array
) -> tuple[Particle, Array, Array]:
    """Accepts or refuses symmetric proposals by logs of uniforms: where the particles are, their
    log density, and who was accepted. For one particle, or for as many at once as the log densities
    have entries.
    """
    accept = log_uniform < log_proposal - log_z

    def choose(new, old):
        return jnp.where(accept.reshape(accept.shape + (1,) * (new.ndim - accept.ndim)), new, old)

    return jax.tree.map(choose, proposal, z), choose(log_proposal, log_z), accept


class AbstractInvariantMove(AbstractTransition):
    """A move that leaves γ_k invariant; what differs between them is `move` alone."""

    def score(self, z: Particle, z_prev: Particle, aux: None, context: Context) -> Scores:
        return invariant_scores(z, z_prev, context)

    def reverse_move(self, key: Key, z: Particle, context: Context) -> Any:
        raise NotImplementedError(
            "The time reversal of an MCMC move is not drawn; upper bounds need a reverse kernel."
        )

    def groups(self) -> PyTree:
        return jax.tree.map(lambda _: "fixed", self)

    @property
    def reparameterised(self) -> bool:
        return False

    @property
    def holdable(self) -> bool:
        return False


class RandomWalk(AbstractInvariantMove):
    """`steps` Gaussian random-walk Metropolis steps. One step size serves every leaf of a particle;
    where particles are single arrays it may be one for each coordinate.

    Args:
        step_size: standard deviation of a proposal, one number, or shape (dim,) where particles are
            arrays.
        steps: Metropolis steps in one move.

    Example:
        ```python
        move = nvi.RandomWalk(step_size=jnp.array([0.5, 2.0]), steps=5)
        context = nvi.kernels.Context(None, lambda z: -0.5 * jnp.sum(z**2))
        z, _ = move.move(jax.random.key(0), jnp.ones(2), context)
        ```
    """

    step_size: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    steps: int = eqx.field(static=True, default=1)

    def move(self, key: Key, z_prev: Particle, context: Context) -> tuple[Particle, None]:
        log_gamma = own_density(context, "An MCMC move")

        def step(carry, key_step):
            z, log_density = carry
            key_noise, key_accept = jax.random.split(key_step)
            leaves, treedef = jax.tree.flatten(z)
            keys = jax.random.split(key_noise, len(leaves))
            proposal = jax.tree.unflatten(
                treedef,
                [
                    x + self.step_size * jax.random.normal(k, x.shape, x.dtype)
                    for k, x in zip(keys, leaves, strict=True)
                ],
            )
            log_proposal = log_gamma(proposal)
            log_uniform = jnp.log(jax.random.uniform(key_accept))
            return metropolis(log_uniform, z, log_density, proposal, log_proposal)[:2], None

        start = z_prev, log_gamma(z_prev)
        (z, _), _ = jax.lax.scan(step, start, jax.random.split(key, self.steps))
        return z, None


class Invariant(AbstractInvariantMove):
    """Any γ_k-invariant move, given as a function `(key, z, log_gamma) -> z`; see
    `nvi.kernels.blackjax_move`.
    """

    step: Callable[[Key, Particle, Callable[[Particle], Scalar]], Particle]

    def move(self, key: Key, z_prev: Particle, context: Context) -> tuple[Particle, None]:
        return self.step(key, z_prev, own_density(context, "An MCMC move")), None
