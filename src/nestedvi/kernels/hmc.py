"""Hamiltonian moves in coordinates that a root of the particles' covariance gives, with steps of
many sizes. They refuse to find that root or to tune a step size.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Flag, Key, Scalar
from nestedvi.kernels.base import Context, own_density
from nestedvi.kernels.mcmc import AbstractInvariantMove

__all__ = ["Hamiltonian", "HamiltonianStep", "hamiltonian_step"]

Vector = Float[Array, " dim"]
# A quarter of the steps is shorter than the tuned size, by up to two decades: no one size suits a
# funnel's neck and its mouth.
_SHORT_SHARE, _DECADES = 0.25, 2.0


class HamiltonianStep(NamedTuple):
    """Where the particle is, the probability with which its proposal was accepted, and whether the
    step was of the tuned size.
    """

    z: Vector
    acceptance: Scalar
    tuned: Flag


def hamiltonian_step(
    key: Key,
    z: Vector,
    log_gamma: Callable[[Vector], Scalar],
    step_size: Scalar,
    root: Float[Array, "dim dim"],
    steps: int,
) -> HamiltonianStep:
    """One trajectory of `steps` leapfrog steps, accepted or not: γ is left invariant. It takes
    steps + 1 gradients.

    Momenta have covariance (root rootᵀ)⁻¹, so that a rotation of the coordinates rotates the move
    with them. The step's size is drawn anew each time, without looking at z.
    """
    if root.shape != (z.shape[0], z.shape[0]):
        raise ValueError(
            f"The root of a metric for particles of {z.shape[0]} coordinates is a square matrix;"
            f" got shape {root.shape}."
        )
    key_p, key_accept, key_short, key_size = jax.random.split(key, 4)
    short = jax.random.uniform(key_short) < _SHORT_SHARE
    size_short = 10.0 ** (-_DECADES * jax.random.uniform(key_size))
    size = step_size * jnp.where(short, size_short, jnp.exp(0.2 * jax.random.normal(key_size)))
    p = jax.random.normal(key_p, z.shape, z.dtype)

    def slope(z: Vector) -> tuple[Scalar, Vector]:
        value, gradient = jax.value_and_grad(log_gamma)(z)
        # A trajectory that leaves the support goes straight on and is refused at its end.
        return value, jnp.where(jnp.isfinite(gradient), gradient, 0.0) @ root

    def leap(state, i):
        z, p, start, _ = state
        value, g = slope(z)
        # Half a kick at both ends, and no drift after the last one. One gradient a round, the first
        # included, is one to compile.
        ends = (i == 0) | (i == steps)
        p = p + jnp.where(ends, 0.5, 1.0) * size * g
        z = jnp.where(i == steps, z, z + size * (root @ p))
        return (z, p, jnp.where(i == 0, value, start), value), None

    nothing = jnp.zeros((), z.dtype)
    (z_new, p_new, start, end), _ = jax.lax.scan(
        leap, (z, p, nothing, nothing), jnp.arange(steps + 1)
    )
    log_accept = end - start - 0.5 * jnp.sum(p_new**2) + 0.5 * jnp.sum(p**2)
    log_accept = jnp.where(jnp.isnan(log_accept), -jnp.inf, jnp.minimum(log_accept, 0.0))
    accept = jnp.log(jax.random.uniform(key_accept)) < log_accept
    return HamiltonianStep(jnp.where(accept, z_new, z), jnp.exp(log_accept), ~short)


class Hamiltonian(AbstractInvariantMove):
    """A Hamiltonian trajectory that leaves γ_k invariant, on vectors.

    Args:
        step_size: of the leapfrog steps, one number.
        root: a lower root of the inverse metric, shape (dim, dim); the identity where coordinates
            are alike.
        steps: leapfrog steps of one trajectory.

    Example:
        ```python
        move = nvi.Hamiltonian(step_size=0.3, root=jnp.eye(2), steps=10)
        context = nvi.kernels.Context(None, lambda z: -0.5 * jnp.sum(z**2))
        z, _ = move.move(jax.random.key(0), jnp.ones(2), context)
        ```
    """

    step_size: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    root: Float[Array, "dim dim"] = eqx.field(converter=jnp.asarray)
    steps: int = eqx.field(static=True, default=10)

    def move(self, key: Key, z_prev: Vector, context: Context) -> tuple[Vector, None]:
        return (
            hamiltonian_step(
                key,
                z_prev,
                own_density(context, "A Hamiltonian move"),
                self.step_size,
                self.root,
                self.steps,
            ).z,
            None,
        )
