"""Does a density have a finite normaliser? Particles of an improper one never stop spreading.

Random-walk moves along differences of other particles follow any ridge and are as long as the
particles are apart: a flat direction widens by a constant factor a round, for ever; the width of a
proper density settles, however large. It is a test for mass that runs away, not a proof that none
does. `RunawayError` is raised here and nowhere else.
"""

from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.affine import Pullback
from nestedvi.errors import DensityError
from nestedvi.kernels.mcmc import metropolis

__all__ = ["RunawayError", "check_width", "settle"]

_PARTICLES, _MAX_ROUNDS = 500, 60
# It is growth when a width is this much above what it was _WINDOW rounds ago: four standard errors
# of 500 particles.
_WINDOW, _GROWTH = 3, 1.3
# Beyond doubt when a width has grown a million times and to a million; a case of doubt after the
# last round when both are 30.
_CERTAIN, _DOUBTFUL = 1e6, 30.0
# A width beyond any that a search which began with one could have reached.
_ASTRONOMIC = 1e8


class RunawayError(DensityError):
    """The particles spread without end along one coordinate."""


def _refuse(
    target: Pullback, names: tuple[str, ...], coordinate: int, before: float, after: float
) -> NoReturn:
    """Widths come in the target's coordinates and are said in the user's units."""
    unit = float(np.asarray(target.map.matrix)[coordinate])
    name = names[coordinate] if names else f"coordinate {coordinate}"
    raise RunawayError(
        f"log Z runs away: particles keep spreading along {name} (width {unit * before:.3g}, then"
        f" {unit * after:.3g} and still growing), as they do when a posterior is improper. Give"
        " that direction a proper prior."
    )


def check_width(
    target: Pullback, z: Float[Array, "particles dim"], names: tuple[str, ...] = ()
) -> None:
    """Raises `RunawayError` if a search, which began with a width of about one, ended so wide that
    it must have followed a flat direction.
    """
    width = np.nan_to_num(np.std(np.asarray(z, np.float64), axis=0), nan=np.inf)
    worst = int(np.argmax(width))
    if width[worst] > _ASTRONOMIC:
        _refuse(target, names, worst, 1.0, float(width[worst]))


def settle(
    key: Key, target: Pullback, z: Float[Array, "particles dim"], names: tuple[str, ...] = ()
) -> tuple[Float[Array, "particles dim"], int]:
    """500 of the particles after they moved until their widths settled, and how many values of the
    density that took; raises `RunawayError` if they spread without end.

    `z` is in units where the search began with a width of about one. The moves follow the density
    only roughly (all particles move at once, along each other): they are no estimate.
    """
    z = z[jnp.linspace(0, z.shape[0] - 1, _PARTICLES).astype(int)]
    z, first, last, rounds, settled = _spread(key, target.log_gamma, z)
    values = int(rounds) * (_num_moves(z.shape[1]) + 1) * _PARTICLES
    if bool(settled):
        return z, values
    first, last = np.asarray(first), np.nan_to_num(np.asarray(last), nan=np.inf)
    # A search that collapsed onto a point grows as well, back to where it should be: both the
    # growth and the width must be large.
    widest = np.where(np.minimum(last, last / first) > _DOUBTFUL, last, 0.0)
    if widest.any():
        worst = int(np.argmax(widest))
        _refuse(target, names, worst, float(first[worst]), float(last[worst]))
    return z, values


def _num_moves(dim: int) -> int:
    """In a round."""
    return max(10, dim // 2)


@eqx.filter_jit
def _spread(key: Key, log_gamma: Any, z: Float[Array, "particles dim"]):
    """The particles at the end, their widths before and after, the number of rounds, and whether
    widths settled; ends when it is beyond doubt."""
    num, dim = z.shape
    moves = _num_moves(dim)

    def log_gamma_all(z):
        return jnp.nan_to_num(jax.vmap(log_gamma)(z), nan=-jnp.inf, neginf=-jnp.inf)

    # Medians, which heavy but proper tails leave alone; from where the particles began, so that
    # drifting away is growth too.
    centre = jnp.median(z, axis=0)

    def width_of(z):
        return jnp.median(jnp.abs(z - centre), axis=0)

    first = width_of(z) + jnp.finfo(z.dtype).tiny

    def go_on(state):
        _, widths, rounds, settled = state
        return (
            ~settled
            & (rounds < _MAX_ROUNDS)
            & (jnp.max(jnp.minimum(widths[-1], widths[-1] / first)) < _CERTAIN)
        )

    def one_round(state):
        z, widths, rounds, _ = state

        def move(state, key):
            z, log_z = state
            key_pair, key_size, key_accept = jax.random.split(key, 3)
            one, other = jax.random.randint(key_pair, (2, num), 0, num)
            size = 2.38 / (2 * dim) ** 0.5 * jnp.exp(jax.random.normal(key_size, (num, 1)) - 0.5)
            proposal = z + size * (z[one] - z[other])
            log_new = log_gamma_all(proposal)
            return metropolis(key_accept, z, log_z, proposal, log_new)[:2], None

        keys = jax.random.split(jax.random.fold_in(key, rounds), moves)
        (z, _), _ = jax.lax.scan(move, (z, log_gamma_all(z)), keys)
        width = width_of(z)
        settled = (rounds + 1 >= _WINDOW) & jnp.all(width < _GROWTH * widths[0])
        return z, jnp.concatenate([widths[1:], width[None]]), rounds + 1, settled

    start = z, jnp.broadcast_to(first, (_WINDOW, dim)), 0, jnp.array(False)
    z, widths, rounds, settled = jax.lax.while_loop(go_on, one_round, start)
    return z, first, widths[-1], rounds, settled
