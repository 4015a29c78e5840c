"""The first term of the nested objective on its own: a flexible q_1 by forward KL from particles,
without the target's gradients.

KL(π ‖ q_1) is, up to a constant, −E_π[log q_1]: maximum likelihood on the particles. Three families
are fitted in coordinates that the particles themselves give, and a mixture of them is weighted on
particles that were held out, so that the family that suits the target wins and none of them is ever
gone.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.linalg
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.compilation import compiled_soon
from nestedvi.densities.affine import Affine, AffineMap, whiten
from nestedvi.densities.autoregressive import SCALE_COORDINATES, AutoregressiveMixture
from nestedvi.densities.mixtures import Mixture
from nestedvi.fitting.directions import independent_directions, scale_coordinates_first
from nestedvi.fitting.mixtures import fit_gaussian, fit_mixture, stack_mixture

__all__ = ["fit_autoregressive", "refit_base"]

Rows = Float[Array, "data dim"]
Square = Float[Array, "dim dim"]

# No family's weight falls below this: a defence against particles that miss some of the mass.
_LEAST_WEIGHT = 0.02
_BATCH, _EVERY = 512, 25


class _InDirections(eqx.Module):
    """An autoregressive mixture in directions of its own, learned together with it."""

    directions: Square
    density: AutoregressiveMixture

    def log_prob(self, u: Float[Array, " dim"]) -> Scalar:
        turn = AffineMap(jnp.zeros_like(u), self.directions)
        return self.density.log_core(turn(u)) + turn.log_det


_GROUPS = ("components", "directions", "linear", "network")


def _group(at, _) -> str:
    names = [part.name for part in at]
    if names[0] == "directions":
        return "directions"
    return (
        "linear"
        if names[1] in ("slopes", "scale_slopes", "scale_bias")
        else "components"
        if names[1] == "head_bias"
        else "network"
    )


# Steps of each stage, and every group's rate in it (zero where it is not named). First the
# coordinates are independent; then place and width of each depend on the earlier ones linearly;
# then the network adds the rest. What is simple is thereby found before the network can learn the
# data by heart: with all at once a funnel's widths were found half as well.
_STAGES = (
    (200, {"components": 2e-2, "directions": 4e-3}),
    (700, {"components": 2e-2, "directions": 8e-3, "linear": 5e-2}),
    (300, {"components": 2e-3, "directions": 1e-3, "linear": 2e-3, "network": 2e-3}),
)


def _rule(group: str) -> optax.GradientTransformation:
    parts = [optax.cosine_decay_schedule(rates.get(group, 0.0), steps) for steps, rates in _STAGES]
    ends = list(itertools.accumulate(steps for steps, _ in _STAGES))
    return optax.adam(optax.join_schedules(parts, ends[:-1]))


@compiled_soon
def fit_autoregressive(key: Key, u: Rows, held_out: Rows) -> _InDirections:
    """Likeliest directions and density for whitened data; of all steps' parameters those that are
    best on the held-out data.
    """
    key_directions, key_density, key_steps = jax.random.split(key, 3)
    directions = scale_coordinates_first(
        u, independent_directions(key_directions, u), SCALE_COORDINATES
    )
    model = _InDirections(directions, AutoregressiveMixture(u @ directions.T, key=key_density))
    groups = jax.tree_util.tree_map_with_path(_group, model)
    optimiser = optax.chain(
        optax.clip_by_global_norm(10.0),
        optax.multi_transform({name: _rule(name) for name in _GROUPS}, groups),
    )

    def loss(model: _InDirections, rows: Rows) -> Scalar:
        return -jnp.mean(jax.vmap(model.log_prob)(rows))

    def step(state, key):
        model, memory = state
        rows = u[jax.random.randint(key, (_BATCH,), 0, u.shape[0])]
        updates, memory = optimiser.update(jax.grad(loss)(model, rows), memory, model)
        return (optax.apply_updates(model, updates), memory), None

    def stretch(state, key):
        model, memory, best, lowest = state
        (model, memory), _ = jax.lax.scan(step, (model, memory), jax.random.split(key, _EVERY))
        value = loss(model, held_out)
        better = value < lowest
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), model, best)
        return (model, memory, best, jnp.where(better, value, lowest)), None

    start = model, optimiser.init(model), model, loss(model, held_out)
    keys = jax.random.split(key_steps, sum(steps for steps, _ in _STAGES) // _EVERY)
    return jax.lax.scan(stretch, start, keys)[0][2]


@compiled_soon
def _assemble(
    fitted: _InDirections, u: Rows, mixture, mean, root, held_out: Rows, wide: Scalar
) -> Mixture:
    flexible = eqx.tree_at(lambda d: d.wide_logit, fitted.density, jax.scipy.special.logit(wide))
    turned = Affine(flexible, jnp.zeros_like(mean), jnp.linalg.inv(fitted.directions))
    parts = tuple(Affine(part, mean, root) for part in (fit_gaussian(u), mixture, turned))
    log_parts = jax.vmap(Mixture(parts, jnp.zeros(3)).log_parts)(held_out)
    weights = jnp.exp(stack_mixture(log_parts)) + _LEAST_WEIGHT
    return Mixture(parts, jnp.log(weights))


def refit_base(key: Key, z: Rows, held_out: Rows, *, wide: float) -> Mixture:
    """A base for a nested sampler from particles of the target.

    **Arguments:**

    - `z`, `held_out`: particles to fit, and others that share no ancestors with them.
    - `wide`: the share of the flexible part's draws that look beyond the particles.
    """
    key_mixture, key_flexible = jax.random.split(key)
    centre, spread, white = whiten(z)
    white_held = scipy.linalg.solve_triangular(
        spread, (np.asarray(held_out) - centre).T, lower=True
    ).T
    mean, root = jnp.asarray(centre, z.dtype), jnp.asarray(spread, z.dtype)
    u, u_held = jnp.asarray(white, z.dtype), jnp.asarray(white_held, z.dtype)
    dim = z.shape[1]
    components = int(min(50, max(3, z.shape[0] // (10 * dim * (dim + 3)))))
    mixture = fit_mixture(key_mixture, u, components)
    fitted = fit_autoregressive(key_flexible, u, u_held)
    return _assemble(fitted, u, mixture, mean, root, held_out, jnp.asarray(wide))
