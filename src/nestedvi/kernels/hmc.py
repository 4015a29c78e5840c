"""Hamiltonian moves in coordinates that a root of the particles' covariance gives, with steps of
many sizes. They refuse to find that root or to tune a step size.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Flag, Key, Scalar
from nestedvi.densities.low_rank import LowRankRoot
from nestedvi.kernels.base import Context, own_density
from nestedvi.kernels.mcmc import AbstractInvariantMove

__all__ = [
    "Hamiltonian",
    "HamiltonianNoise",
    "HamiltonianStep",
    "draw_noise",
    "hamiltonian_step",
    "noise_on_host",
]

Vector = Float[Array, " dim"]
Root = Float[Array, "dim dim"] | LowRankRoot
# A quarter of the steps is shorter than the tuned size, by up to two decades: no one size suits a
# funnel's neck and its mouth.
_SHORT_SHARE, _DECADES, _JITTER = 0.25, 2.0, 0.2


class HamiltonianStep(NamedTuple):
    """Where the particle is, the probability with which its proposal was accepted, and whether the
    step was of the tuned size.
    """

    z: Vector
    acceptance: Scalar
    tuned: Flag


class HamiltonianNoise(NamedTuple):
    """What is random in a move: the momentum in the metric's coordinates, the log of a uniform that
    decides on acceptance, the factor of the step size, and whether that is a short one.
    """

    momentum: Vector | np.ndarray
    log_uniform: Scalar | np.ndarray
    factor: Scalar | np.ndarray
    short: Flag | np.ndarray


def draw_noise(key: Key, z: Vector) -> HamiltonianNoise:
    """For one move of a particle like `z`; the size is drawn without looking at it."""
    key_p, key_accept, key_short, key_size = jax.random.split(key, 4)
    short = jax.random.uniform(key_short) < _SHORT_SHARE
    size_short = 10.0 ** (-_DECADES * jax.random.uniform(key_size))
    factor = jnp.where(short, size_short, jnp.exp(_JITTER * jax.random.normal(key_size)))
    momentum = jax.random.normal(key_p, z.shape, z.dtype)
    return HamiltonianNoise(momentum, jnp.log(jax.random.uniform(key_accept)), factor, short)


def noise_on_host(rng: np.random.Generator, num: int, dim: int, dtype: Any) -> HamiltonianNoise:
    """For a move of each of `num` particles, with nothing to compile."""
    short = rng.uniform(size=num) < _SHORT_SHARE
    size_short = 10.0 ** (-_DECADES * rng.uniform(size=num))
    factor = np.where(short, size_short, np.exp(_JITTER * rng.normal(size=num)))
    momentum = rng.standard_normal((num, dim)).astype(dtype)
    log_uniform = np.log1p(-rng.uniform(size=num)).astype(dtype)
    return HamiltonianNoise(momentum, log_uniform, factor.astype(dtype), short)


def hamiltonian_step(
    noise: HamiltonianNoise,
    z: Vector,
    log_gamma: Callable[[Vector], Scalar],
    step_size: Scalar,
    root: Root,
    steps: int,
) -> HamiltonianStep:
    """One trajectory of `steps` leapfrog steps, accepted or not: γ is left invariant. It takes
    steps + 1 gradients.

    Momenta have covariance (root rootᵀ)⁻¹, so that a rotation of the coordinates rotates the move
    with them. The step's size is a new one each time.
    """
    if root.shape != (z.shape[0], z.shape[0]):
        raise ValueError(
            f"The root of a metric for particles of {z.shape[0]} coordinates is a square matrix;"
            f" got shape {root.shape}."
        )
    p, log_uniform, factor, short = noise
    size = step_size * factor

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
    accept = log_uniform < log_accept
    return HamiltonianStep(jnp.where(accept, z_new, z), jnp.exp(log_accept), jnp.logical_not(short))


def _as_root(root: Any) -> Root:
    return root if isinstance(root, LowRankRoot) else jnp.asarray(root)


class Hamiltonian(AbstractInvariantMove):
    """A Hamiltonian trajectory that leaves γ_k invariant, on vectors.

    Args:
        step_size: of the leapfrog steps, one number.
        root: a root of the inverse metric, shape (dim, dim), or a `nvi.densities.LowRankRoot`; the
            identity where coordinates are alike.
        steps: leapfrog steps of one trajectory.

    Example:
        ```python
        move = nvi.Hamiltonian(step_size=0.3, root=jnp.eye(2), steps=10)
        context = nvi.kernels.Context(None, lambda z: -0.5 * jnp.sum(z**2))
        z, _ = move.move(jax.random.key(0), jnp.ones(2), context)
        ```
    """

    step_size: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    root: Float[Array, "dim dim"] | LowRankRoot = eqx.field(converter=_as_root)
    steps: int = eqx.field(static=True, default=10)

    def move(self, key: Key, z_prev: Vector, context: Context) -> tuple[Vector, None]:
        return (
            hamiltonian_step(
                draw_noise(key, z_prev),
                z_prev,
                own_density(context, "A Hamiltonian move"),
                self.step_size,
                self.root,
                self.steps,
            ).z,
            None,
        )
