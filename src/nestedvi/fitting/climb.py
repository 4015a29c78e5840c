"""Many maximisations of one log density side by side: L-BFGS, many rounds of it in one call.

A library's optimiser asks for one gradient at a time, which is what an accelerator and a compiled
program are worst at. Here every round asks for the gradients of all climbs at once, and a call goes
on for many rounds: a round of a small density takes less time than the call. A climb takes a step
that rises enough, or tries a shorter one in the next round, whatever the others do.

The first round of a climb evaluates the density where it starts. A climb of that one round is how
values and gradients are asked for, so that one program serves both.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nestedvi._types import Scalar
from nestedvi.compilation import compiled_soon
from nestedvi.densities.base import AbstractDensity
from nestedvi.host import default_device
from nestedvi.pieces import in_pieces

__all__ = ["Climbed", "climb"]

_MEMORY = 12
_RISE = 1e-4
# A climb ends when so many steps in a row rose, and the next one promises to rise, by less than
# this in log density.
_ENOUGH, _PATIENCE = 1e-3, 4
_SHORTEST = 1e-9
# Rounds of one call. Ctrl-C waits for its end.
_CALL = 25

Rows = Float[Array, "climbs dim"]
PerClimb = Float[Array, " climbs"]


class Climbed(NamedTuple):
    """Where climbs ended, log γ and its slope there, and which of them ended at a top (others ran
    out of rounds or began where there is no mass); the gradients that all of them took.
    """

    z: Float[np.ndarray, "starts dim"]
    log_gamma: Float[np.ndarray, " starts"]
    slope: Float[np.ndarray, "starts dim"]
    at_top: Bool[np.ndarray, " starts"]
    gradients: int


class _Memory(NamedTuple):
    """The last steps of every climb and how the gradient changed over them, the newest last. A
    curvature of zero marks a place that is empty.
    """

    steps: Float[Array, "memory climbs dim"]
    changes: Float[Array, "memory climbs dim"]
    curvature: Float[Array, "memory climbs"]

    def add(self, rows: Bool[Array, " climbs"], step: Rows, change: Rows) -> "_Memory":
        """A step along which the density curves upwards is forgotten."""
        curvature = jnp.sum(step * change, axis=1)
        good = rows & (curvature > 1e-8 * _length(step) * _length(change))

        def pushed(kept, new):
            wanted = good.reshape(-1, *[1] * (new.ndim - 1))
            return jnp.where(wanted, jnp.concatenate([kept[1:], new[None]]), kept)

        return _Memory(*map(pushed, self, (step, change, curvature)))

    def forget(self, rows: Bool[Array, " climbs"]) -> "_Memory":
        return self._replace(curvature=jnp.where(rows, 0.0, self.curvature))

    def direction(self, slope: Rows) -> Rows:
        """The slope times an inverse Hessian by the two-loop recursion; an empty place leaves it
        alone.
        """
        empty = self.curvature <= 0
        rho = jnp.where(empty, 0.0, 1 / jnp.where(empty, 1.0, self.curvature))
        places = (self.steps, self.changes, rho)

        def down(d, place):
            step, change, rho = place
            weight = rho * jnp.sum(step * d, axis=1)
            return d - weight[:, None] * change, weight

        def up(d, place):
            (step, change, rho), weight = place
            back = rho * jnp.sum(change * d, axis=1)
            return d + (weight - back)[:, None] * step, None

        d, weights = jax.lax.scan(down, slope, places, reverse=True)
        newest = jnp.sum(self.changes[-1] ** 2, axis=1)
        unit = jnp.where(
            empty[-1], _first_size(slope), self.curvature[-1] / jnp.where(empty[-1], 1.0, newest)
        )
        return jax.lax.scan(up, unit[:, None] * d, (places, weights))[0]


class _Climbs(NamedTuple):
    """Climbs on their way: where they are, what they try next, and for how many steps in a row each
    has hardly risen.
    """

    z: Rows
    value: PerClimb
    slope: Rows
    direction: Rows
    size: PerClimb
    memory: _Memory
    running: Bool[Array, " climbs"]
    at_top: Bool[Array, " climbs"]
    calm: Int[Array, " climbs"]
    gradients: Scalar
    rounds: Scalar


def climb(
    density: AbstractDensity,
    starts: Float[np.ndarray, "starts dim"],
    *,
    rounds: int = 400,
    piece: int = 64,
) -> Climbed:
    """Tops of log γ above every start, `piece` of them at once. Where log γ, its slope or the
    square of that is not finite there is no mass, and a step into it is too long.
    """
    starts = np.asarray(starts)
    parts = [
        _climb_piece(density, rows, min(piece, len(starts) - piece * i), rounds)
        for i, rows in enumerate(in_pieces(starts, piece))
    ]
    *arrays, gradients = zip(*parts, strict=True)
    z, log_gamma, slope, at_top = (np.concatenate(x)[: len(starts)] for x in arrays)
    return Climbed(z, log_gamma, slope, at_top, sum(gradients))


def _climb_piece(density: AbstractDensity, starts: np.ndarray, num: int, rounds: int) -> Climbed:
    """Of the first `num`; the others are there to fill the piece."""
    dtype = np.dtype(jnp.result_type(float))
    device = default_device()
    own = {"z": starts.astype(dtype), "running": np.arange(len(starts)) < num}
    now = _begin(starts.shape, dtype, device)._replace(**jax.device_put(own, device))
    for done in range(0, 1 + rounds, _CALL):
        now = _go_on(density, now, jnp.int32(min(_CALL, 1 + rounds - done)))
        if not np.any(now.running):
            break
    z, log_gamma, slope = (np.asarray(x, np.float64) for x in (now.z, now.value, now.slope))
    return Climbed(z, log_gamma, slope, np.asarray(now.at_top), int(now.gradients))


@lru_cache(maxsize=8)
def _begin(shape: tuple[int, int], dtype: np.dtype, device: Any) -> _Climbs:
    """Before the first round: nothing to try but the place itself. Where the density is, so that
    calls later on are of the same kind as the first.
    """
    count, zero = shape[0], np.zeros(shape, dtype)
    many = np.zeros((_MEMORY, *shape), dtype)
    state: Any = {
        "z": zero,
        "value": np.full(count, -np.inf, dtype),
        "slope": zero,
        "direction": zero,
        "size": np.ones(count, dtype),
        "memory": _Memory(many, many, many[..., 0]),  # type: ignore[arg-type]
        "running": np.zeros(count, bool),
        "at_top": np.zeros(count, bool),
        "calm": np.zeros(count, np.int32),
        "gradients": np.int32(0),
        "rounds": np.int32(0),
    }
    return jax.device_put(_Climbs(**state), device)


@compiled_soon
def _go_on(density: AbstractDensity, now: _Climbs, rounds: Scalar) -> _Climbs:
    """So many rounds more, fewer where all climbs have ended."""
    ready, until = density.precomputed(), now.rounds + rounds

    def going(now: _Climbs) -> Array:
        return (now.rounds < until) & jnp.any(now.running)

    return jax.lax.while_loop(going, lambda now: _round(ready, now), now)


def _round(density: AbstractDensity, now: _Climbs) -> _Climbs:
    is_first = now.rounds == 0
    running = now.running
    tried = now.z + now.size[:, None] * now.direction
    value, slope = jax.vmap(jax.value_and_grad(density.log_gamma))(tried)
    # The square of a larger slope is no number.
    steepest = 1e-4 * jnp.finfo(value.dtype).max ** 0.5
    has_mass = jnp.isfinite(value) & jnp.all(jnp.abs(slope) < steepest, axis=1)
    value = jnp.where(has_mass, value, -jnp.inf)
    slope = jnp.where(has_mass[:, None], slope, 0.0)
    # Rounding of a large log density must not refuse a good step.
    wanted = _RISE * now.size * jnp.sum(now.slope * now.direction, axis=1)
    slack = 1e-9 + 0.1 * np.finfo(np.float32).eps * jnp.abs(now.value)
    rises = running & has_mass & (is_first | (value >= now.value + wanted - slack))

    memory = now.memory.add(rises, tried - now.z, now.slope - slope)
    rose = value - now.value
    z = jnp.where(rises[:, None], tried, now.z)
    value, slope = jnp.where(rises, value, now.value), jnp.where(rises[:, None], slope, now.slope)
    direction = jnp.where(rises[:, None], memory.direction(slope), now.direction)
    promised = jnp.sum(slope * direction, axis=1)
    is_calm = jnp.maximum(rose, promised) < _ENOUGH
    calm = jnp.where(rises, jnp.where(is_calm, now.calm + 1, 0), now.calm)
    ended = rises & ((calm >= _PATIENCE) | (promised <= 1e-12))

    size = jnp.where(rises, 1.0, 0.3 * now.size)
    # Too short a step: once more along the slope, and if there is no memory to blame, here.
    short = running & (size < _SHORTEST)
    blamed = short & (memory.curvature[-1] > 0)
    direction = jnp.where(blamed[:, None], _first_size(slope)[:, None] * slope, direction)
    ended = ended | (short & ~blamed)
    begins_without_mass = is_first & ~has_mass
    return _Climbs(
        z=z,
        value=value,
        slope=slope,
        direction=direction,
        size=jnp.where(short, 1.0, size),
        memory=memory.forget(blamed),
        running=running & ~ended & ~begins_without_mass,
        at_top=now.at_top | ended,
        calm=calm,
        gradients=now.gradients + jnp.sum(running, dtype=now.gradients.dtype),
        rounds=now.rounds + 1,
    )


def _first_size(slope: Rows) -> PerClimb:
    """Without a memory the first step is of length one, in the units of the search, or less."""
    return jnp.minimum(1 / jnp.maximum(_length(slope), 1e-30), 1.0)


def _length(rows: Rows) -> PerClimb:
    return jnp.linalg.norm(rows, axis=1)
