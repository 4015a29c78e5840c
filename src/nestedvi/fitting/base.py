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
from nestedvi.pieces import piece_size, through_pieces
from nestedvi.randomness import split_on_host

__all__ = ["refine_places", "refit_base"]

Vector = Float[Array, " dim"]
Rows = Float[Array, "data dim"]
Square = Float[Array, "dim dim"]
Data = Float[Array, "data dim"] | np.ndarray

# No family's weight falls below this: a defence against particles that miss some of the mass.
_LEAST_WEIGHT = 0.02
_BATCH, _EVERY = 512, 25
# Rows whose conditionals are computed at once.
_PIECE = 2048
# Steps of expectation maximisation for places, and what is added to the diagonal of their normal
# equations, relative to it. Where ρ hardly varies the slopes of δ say what those of a say, and only
# the difference would be left to fit noise with.
_REFINEMENTS, _RIDGE, _RIDGE_APART, _LEAST = 3, 1e-6, 1e-3, 1e-12
# A slope of a width along a coordinate costs so many nats of its size for every unit by which that
# goes out further than a Gaussian: what particles say little of is zero there, not multiplied.
_SLOPE_COST, _GAUSSIAN_REACH = 0.002, 4.0


class _InDirections(eqx.Module):
    """An autoregressive mixture in directions of its own, learned together with it."""

    directions: Square
    density: AutoregressiveMixture

    def mean_log_prob(self, u: Rows, has_network: bool) -> Scalar:
        turn = AffineMap(jnp.zeros_like(u[0]), self.directions)
        log_core = partial(self.density.log_core, has_network=has_network)
        return jnp.mean(jax.vmap(log_core)(turn(u))) + turn.log_det

    def cost(self, of_slopes: Vector) -> Scalar:
        """Of the slopes of widths, and of those of the second expert's precision."""
        return jnp.sum(of_slopes[:, None] * jnp.abs(self.density.scale_slopes[..., ::2]))


class _Whitened(NamedTuple):
    """Whitened particles to fit, others that were held out, and what slopes along each of the first
    directions cost.
    """

    u: Rows
    held_out: Rows
    of_slopes: Vector

    @classmethod
    def along(cls, directions: np.ndarray, u: np.ndarray, held_out: np.ndarray) -> "_Whitened":
        reach = np.abs(u @ directions[:SCALE_COORDINATES].T).max(axis=0)
        cost = _SLOPE_COST * np.maximum(reach - _GAUSSIAN_REACH, 0.0)
        return cls(*(jnp.asarray(x) for x in (u, held_out, cost.astype(u.dtype))))


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
    key: Key, model: _InDirections, data: _Whitened, stages: Sequence[_Stage]
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
        whole = eqx.combine(unravel(numbers), fixed)
        return whole.cost(data.of_slopes) - whole.mean_log_prob(rows, has_network)

    def step(state, inputs):
        numbers, memory = state
        rows, rates = inputs
        updates, memory = optimiser.update(jax.grad(loss)(numbers, data.u[rows]), memory)
        return (numbers - rates[group] * updates, memory), None

    def stretch(state, inputs):
        numbers, memory, best, lowest = state
        (numbers, memory), _ = jax.lax.scan(step, (numbers, memory), inputs)
        value = loss(numbers, data.held_out)
        best = jnp.where(value < lowest, numbers, best)
        return (numbers, memory, best, jnp.minimum(value, lowest)), None

    rates = jnp.asarray(_rates(stages), data.u.dtype).reshape(-1, _EVERY, len(_GROUPS))
    rows = jax.random.randint(key, (*rates.shape[:2], _BATCH), 0, data.u.shape[0])
    state = start, optimiser.init(start), start, loss(start, data.held_out)
    return eqx.combine(unravel(jax.lax.scan(stretch, state, (rows, rates))[0][2]), fixed)


@compiled_soon
def _learn_simple(
    key: Key, directions: Square, density: AutoregressiveMixture, data: _Whitened
) -> _InDirections:
    return _learn(key, _InDirections(directions, density), data, _SIMPLE)


@compiled_soon
def _learn_rest(key: Key, model: _InDirections, data: _Whitened) -> _InDirections:
    return _learn(key, model, data, _REST)


def _in_directions(key: Key, u: np.ndarray, held_out: np.ndarray) -> _InDirections:
    """Directions, places and widths for whitened data, without a network so far."""
    key_directions, key_density, key_steps = split_on_host(key, 3)
    independent = independent_directions(key_directions, u)
    rows = scale_coordinates_first(u, independent, SCALE_COORDINATES).astype(u.dtype)
    density = AutoregressiveMixture(u @ rows.T, key=key_density)
    data = _Whitened.along(rows, u, held_out)
    return _learn_simple(key_steps, jnp.asarray(rows), density, data)


@compiled_soon
def _conditionals(
    density: AutoregressiveMixture, y: Float[Array, "data dim"]
) -> tuple[Array, Array, Array, Array]:
    """Of every row and coordinate: by how much it is off its place, averaged over components by how
    precisely each says so, that precision, ρ / (1 + ρ), and the log density.
    """

    def one(y: Float[Array, " dim"]) -> tuple[Array, Array, Array, Array]:
        here = density.conditionals(y)
        off = y[:, None] - here.mean
        log_parts = here.log_share - 0.5 * (off * jnp.exp(-here.log_width)) ** 2 - here.log_width
        precision = jax.nn.softmax(log_parts) * jnp.exp(-2 * here.log_width)
        total = jnp.sum(precision, axis=-1)
        mean_off = jnp.sum(precision * off, axis=-1) / total
        return mean_off, total, density.second_share(y), here.log_prob(y)

    return jax.vmap(one)(y)


def refine_places(
    density: AutoregressiveMixture, y: np.ndarray, held_out: np.ndarray
) -> AutoregressiveMixture:
    """The density with the likeliest places for the rows `y`, by weighted least squares. A
    coordinate for which they are not likelier on rows that were held out keeps its own.

    In the neck of a funnel a conditional is a thousand times narrower than at its mouth, and its
    place has to be as exact. For that a gradient's steps are too coarse: one that suits the mouth
    is many widths of the neck. Given widths and shares places are a linear problem, a coordinate at
    a time; it is solved in steps of expectation maximisation.
    """
    num, both = len(y), np.concatenate([y, held_out])
    seen = _on_host(density, both)
    for _ in range(_REFINEMENTS):
        changes = _changes(y, [x[:num] for x in seen[:3]], density.scale_slopes.shape[1])
        tried = _on_host(_moved(density, changes), both)
        better = np.mean(tried[3][num:] - seen[3][num:], axis=0) > 0
        # No coordinate's conditional has a part in another's.
        density = _moved(density, [np.where(better, x.T, 0.0).T for x in changes])
        seen = [np.where(better, new, old) for new, old in zip(tried, seen, strict=True)]
    return density


def _on_host(density: AutoregressiveMixture, y: np.ndarray) -> list[np.ndarray]:
    parts = through_pieces(
        lambda piece: _conditionals(density, jax.device_put(piece)), y, piece_size(_PIECE)
    )
    return [np.asarray(x, np.float64) for x in parts]


def _changes(y: np.ndarray, seen: list[np.ndarray], leading: int) -> list[np.ndarray]:
    """Of the slopes of a, the slopes of δ and its constant, a row a coordinate."""
    off, precision, second = seen
    dim, y = y.shape[1], y.astype(np.float64)
    slopes, apart, constant = np.zeros((dim, dim)), np.zeros((dim, leading)), np.zeros(dim)
    for i in range(dim):
        num, share = min(i, leading), second[:, i, None]
        given = np.concatenate([y[:, :i], share * y[:, :num], share], axis=1)
        weighted = precision[:, i, None] * given
        normal = weighted.T @ given
        ridge = np.repeat([_RIDGE, _RIDGE_APART, _RIDGE], [i, num, 1])
        normal += np.diag(ridge * np.diag(normal) + _LEAST)
        slopes[i, :i], apart[i, :num], (constant[i],) = np.split(
            np.linalg.solve(normal, weighted.T @ off[:, i]), [i, i + num]
        )
    return [slopes, apart, constant]


def _moved(density: AutoregressiveMixture, changes: list[np.ndarray]) -> AutoregressiveMixture:
    scale_slopes, scale_bias = np.array(density.scale_slopes), np.array(density.scale_bias)
    slopes, apart, constant = changes
    scale_slopes[..., 1] += apart
    scale_bias[:, 1] += constant
    slopes = (np.asarray(density.slopes) + slopes).astype(scale_bias.dtype)
    arrays = [jnp.asarray(x) for x in (slopes, scale_slopes, scale_bias)]
    return eqx.tree_at(lambda d: (d.slopes, d.scale_slopes, d.scale_bias), density, arrays)


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
    data = _Whitened.along(np.asarray(model.directions), u, u_held)
    model = _learn_rest(key_rest, model, data)
    directions = np.asarray(model.directions)
    density = refine_places(model.density, u @ directions.T, u_held @ directions.T)
    wide_logit = jnp.asarray(scipy.special.logit(wide), dtype)
    density = eqx.tree_at(lambda d: d.wide_logit, density, wide_logit)
    turned = Affine(density, np.zeros(dim, dtype), np.linalg.inv(directions))
    parts = [there(part) for part in (fit_gaussian(u), mixture, turned)]
    log_parts = np.stack([part.log_prob_many(held_out) for part in parts], axis=1)
    weights = np.exp(stack_mixture(log_parts)) + _LEAST_WEIGHT
    return Mixture(parts, jnp.asarray(np.log(weights), dtype))
