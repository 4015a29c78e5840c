"""The first term of the nested objective on its own: a flexible q_1 by forward KL from particles,
without the target's gradients.

KL(π ‖ q_1) is, up to a constant, −E_π[log q_1]: maximum likelihood on the particles. Three families
are fitted in coordinates that the particles themselves give, and a mixture of them is weighted on
particles that were held out, so that the family that suits the target wins and none of them is ever
gone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.linalg
import scipy.special
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.compilation import compiled_soon
from nestedvi.densities.affine import Affine, AffineMap, whiten
from nestedvi.densities.autoregressive import SCALE_COORDINATES, AutoregressiveMixture
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.mixtures import Mixture
from nestedvi.fitting.directions import independent_directions, scale_coordinates_first
from nestedvi.fitting.mixtures import fit_gaussian, fit_mixture, stack_mixture
from nestedvi.randomness import split_on_host

__all__ = ["refit_base"]

Vector = Float[Array, " dim"]
Rows = Float[Array, "data dim"]
Square = Float[Array, "dim dim"]
Data = Float[Array, "data dim"] | np.ndarray

# No family's weight falls below this: a defence against particles that miss some of the mass.
_LEAST_WEIGHT = 0.02
_BATCH, _EVERY = 512, 25


class _InDirections(eqx.Module):
    """An autoregressive mixture in directions of its own, learned together with it."""

    directions: Square
    density: AutoregressiveMixture

    def mean_log_prob(self, u: Rows, has_network: bool) -> Scalar:
        turn = AffineMap(jnp.zeros_like(u[0]), self.directions)
        log_core = partial(self.density.log_core, has_network=has_network)
        return jnp.mean(jax.vmap(log_core)(turn(u))) + turn.log_det


_GROUPS = ("components", "directions", "linear", "network")


def _group(at: Any, _: Any) -> int:
    names = [part.name for part in at]
    if names[0] == "directions":
        return _GROUPS.index("directions")
    return _GROUPS.index(
        "linear"
        if names[1] in ("slopes", "scale_slopes", "scale_bias")
        else "components"
        if names[1] == "head_bias"
        else "network"
    )


class _Stage(NamedTuple):
    """Steps, and the rate that each group begins with; one that is not named does not learn."""

    steps: int
    rates: dict[str, float]


# First the coordinates are independent; then place and width of each depend on the earlier ones
# linearly; then the network adds the rest. What is simple is thereby found before the network can
# learn the data by heart: with all at once a funnel's widths were found half as well.
_SIMPLE = (
    _Stage(200, {"components": 2e-2, "directions": 4e-3}),
    _Stage(700, {"components": 2e-2, "directions": 8e-3, "linear": 5e-2}),
)
_REST = (_Stage(300, {"components": 2e-3, "directions": 1e-3, "linear": 2e-3, "network": 2e-3}),)


def _rates(stages: Sequence[_Stage]) -> np.ndarray:
    """Of every step and group: they fall to zero within each stage."""
    return np.concatenate(
        [
            np.outer(
                0.5 * (1 + np.cos(np.pi * np.arange(steps) / steps)),
                [rates.get(name, 0.0) for name in _GROUPS],
            )
            for steps, rates in stages
        ]
    )


def _learn(
    key: Key, model: _InDirections, u: Rows, held_out: Rows, stages: Sequence[_Stage]
) -> _InDirections:
    """The likeliest model by Adam; of all steps' parameters those that are best on the held-out
    data.
    """
    has_network = any("network" in stage.rates for stage in stages)
    # What does not learn is neither evaluated nor differentiated. One vector of numbers rather than
    # ten arrays: an accelerator takes as long for a small array as for a large one.
    groups = jax.tree_util.tree_map_with_path(_group, model)
    learning = jax.tree.map(lambda g: has_network or _GROUPS[g] != "network", groups)
    changing, fixed = eqx.partition(model, learning)
    start, unravel = ravel_pytree(changing)
    of_each = jax.tree.map(lambda x, g: jnp.full(jnp.shape(x), g), model, groups)
    group, _ = ravel_pytree(eqx.filter(of_each, learning))
    optimiser = optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam())

    def loss(numbers: Vector, rows: Rows) -> Scalar:
        return -eqx.combine(unravel(numbers), fixed).mean_log_prob(rows, has_network)

    def step(state, inputs):
        numbers, memory = state
        rows, rates = inputs
        updates, memory = optimiser.update(jax.grad(loss)(numbers, u[rows]), memory)
        return (numbers - rates[group] * updates, memory), None

    def stretch(state, inputs):
        numbers, memory, best, lowest = state
        (numbers, memory), _ = jax.lax.scan(step, (numbers, memory), inputs)
        value = loss(numbers, held_out)
        best = jnp.where(value < lowest, numbers, best)
        return (numbers, memory, best, jnp.minimum(value, lowest)), None

    rates = jnp.asarray(_rates(stages), u.dtype).reshape(-1, _EVERY, len(_GROUPS))
    rows = jax.random.randint(key, (*rates.shape[:2], _BATCH), 0, u.shape[0])
    state = start, optimiser.init(start), start, loss(start, held_out)
    return eqx.combine(unravel(jax.lax.scan(stretch, state, (rows, rates))[0][2]), fixed)


@compiled_soon
def _learn_simple(
    key: Key, directions: Square, density: AutoregressiveMixture, u: Rows, held_out: Rows
) -> _InDirections:
    return _learn(key, _InDirections(directions, density), u, held_out, _SIMPLE)


@compiled_soon
def _learn_rest(key: Key, model: _InDirections, u: Rows, held_out: Rows) -> _InDirections:
    return _learn(key, model, u, held_out, _REST)


def _in_directions(key: Key, u: np.ndarray, held_out: np.ndarray) -> _InDirections:
    """Directions, places and widths for whitened data, without a network so far."""
    key_directions, key_density, key_steps = split_on_host(key, 3)
    independent = independent_directions(key_directions, u)
    rows = scale_coordinates_first(u, independent, SCALE_COORDINATES).astype(u.dtype)
    density = AutoregressiveMixture(u @ rows.T, key=key_density)
    directions, *data = (jnp.asarray(x) for x in (rows, u, held_out))
    return _learn_simple(key_steps, directions, density, *data)


class _Learned(NamedTuple):
    """The flexible part of a base, and the map to the coordinates that it was learned in."""

    white: AffineMap
    model: _InDirections


def _learned(base: Mixture) -> _Learned:
    """Of a base that `refit_base` made."""
    outer = base.parts[-1]
    assert isinstance(outer, Affine) and isinstance(outer.part, Affine)
    density = outer.part.part
    assert isinstance(density, AutoregressiveMixture)
    directions = np.linalg.inv(np.asarray(outer.part.map.matrix))
    return _Learned(outer.map, _InDirections(jnp.asarray(directions), density))


def refit_base(
    key: Key, z: Data, held_out: Data, *, wide: float, before: Mixture | None = None
) -> Mixture:
    """A base for a nested sampler from particles of the target.

    **Arguments:**

    - `z`, `held_out`: particles to fit, and others that share no ancestors with them.
    - `wide`: the share of the flexible part's draws that look beyond the particles.
    - `before`: a base that was fitted to other particles of the same target; the flexible part then
      goes on from there.
    """
    key_mixture, key_simple, key_rest = split_on_host(key, 3)
    dim, dtype = z.shape[1], z.dtype
    old = None if before is None else _learned(before)
    if old is None:
        centre, spread, _ = whiten(z)
    else:
        centre, spread = (np.asarray(x, np.float64) for x in (old.white.shift, old.white.matrix))

    def whitened(rows: Data) -> np.ndarray:
        away = (np.asarray(rows, np.float64) - centre).T
        return scipy.linalg.solve_triangular(spread, away, lower=True).T.astype(dtype)

    def there(part: AbstractSampleable) -> Affine:
        return Affine(part, centre.astype(dtype), spread.astype(dtype))

    u, u_held = whitened(z), whitened(held_out)
    components = int(min(50, max(3, z.shape[0] // (10 * dim * (dim + 3)))))
    mixture = fit_mixture(key_mixture, u, components)
    model = _in_directions(key_simple, u, u_held) if old is None else old.model
    model = _learn_rest(key_rest, model, jnp.asarray(u), jnp.asarray(u_held))
    wide_logit = jnp.asarray(scipy.special.logit(wide), dtype)
    density = eqx.tree_at(lambda d: d.wide_logit, model.density, wide_logit)
    turned = Affine(density, np.zeros(dim, dtype), np.linalg.inv(np.asarray(model.directions)))
    parts = [there(part) for part in (fit_gaussian(u), mixture, turned)]
    log_parts = np.stack([part.log_prob_many(held_out) for part in parts], axis=1)
    weights = np.exp(stack_mixture(log_parts)) + _LEAST_WEIGHT
    return Mixture(parts, jnp.asarray(np.log(weights), dtype))
