"""Slice moves along random lines (hit and run): a bracket is placed around the particle and shrinks
until a point of it is inside of the slice.

They take values of the density alone, and a bracket that is far too wide costs only the logarithm
of what it is too wide by. So one width serves a narrow part of a density and a wide one, and a
density that is cut off where its support ends. They refuse to find a metric or to tune a width.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Scalar

__all__ = ["SliceNoise", "Sliced", "slice_noise_on_host", "slice_steps"]

Vector = Float[Array, " dim"]
# Points that are tried on one line. Brackets have shrunk to about 10⁻⁸ of their width by then; a
# particle that found nothing stays, which leaves the density invariant too.
_TRIES = 40


class SliceNoise(NamedTuple):
    """What is random in a number of steps: their directions in the metric's coordinates, the logs
    of the slices' heights as shares of the density, where the particle is in its bracket, and the
    points that are tried.
    """

    directions: Float[Array, "steps dim"] | np.ndarray
    log_heights: Float[Array, " steps"] | np.ndarray
    places: Float[Array, " steps"] | np.ndarray
    points: Float[Array, "steps tries"] | np.ndarray


class Sliced(NamedTuple):
    """Where the particle is, and how many points were tried."""

    z: Vector
    tries: Scalar


def slice_noise_on_host(
    rng: np.random.Generator, num: int, steps: int, dim: int, dtype: Any
) -> SliceNoise:
    """For `steps` steps of each of `num` particles, with nothing to compile."""
    directions = rng.standard_normal((num, steps, dim))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    return SliceNoise(
        directions.astype(dtype),
        np.log1p(-rng.uniform(size=(num, steps))).astype(dtype),
        rng.uniform(size=(num, steps)).astype(dtype),
        rng.random((num, steps, _TRIES), dtype),
    )


def slice_steps(
    noise: SliceNoise,
    z: Vector,
    log_gamma: Callable[[Vector], Scalar],
    width: Scalar,
    root: Float[Array, "dim dim"],
) -> Sliced:
    """A slice step along each direction: γ is left invariant. Brackets are `width` long in the
    coordinates that the root of a metric gives. A NaN is no mass.
    """
    directions = noise.directions @ root.T
    steps, tries = noise.points.shape

    def bracket(k):
        low = -width * noise.places[jnp.minimum(k, steps - 1)]
        return low, low + width

    def value(z):
        log_density = log_gamma(z)
        return jnp.where(jnp.isnan(log_density), -jnp.inf, log_density)

    # One loop over all tries of all steps, so that particles side by side wait for each other once
    # and not at every step.
    def attempt(state):
        k, j, z, log_z, low, high, total = state
        t = low + noise.points[k, j] * (high - low)
        proposal = z + t * directions[k]
        log_proposal = value(proposal)
        inside = log_proposal > log_z + noise.log_heights[k]
        over = inside | (j + 1 == tries)
        z, log_z = jnp.where(inside, proposal, z), jnp.where(inside, log_proposal, log_z)
        low, high = jnp.where(t < 0, t, low), jnp.where(t < 0, high, t)
        k, j = jnp.where(over, k + 1, k), jnp.where(over, 0, j + 1)
        next_low, next_high = bracket(k)
        low, high = jnp.where(over, next_low, low), jnp.where(over, next_high, high)
        return k, j, z, log_z, low, high, total + 1

    nothing = jnp.zeros((), int)
    state = (nothing, nothing, z, value(z), *bracket(nothing), nothing)
    state = jax.lax.while_loop(lambda s: s[0] < steps, attempt, state)
    return Sliced(state[2], state[6])
