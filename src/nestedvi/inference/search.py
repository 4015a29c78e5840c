"""What the answers of `sample` share: a first run from a wide base, what is wrong with a run in
whole sentences, stages.
"""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.base import AbstractDensity
from nestedvi.densities.compound import ScaleMixture
from nestedvi.inference.answer import Request
from nestedvi.inference.coordinates import Located, check_found, find_coordinates, find_runaway
from nestedvi.inference.runaway import RunawayError
from nestedvi.progress import as_reporter
from nestedvi.smc.tempering import MAX_LEVELS, Plan, Tempering, tempering

__all__ = ["Stages", "doubts", "search"]

# A width beyond any that a search which began with one could have found.
_ASTRONOMIC = 1e8


def search(key: Key, request: Request, num: int, plan: Plan) -> tuple[Located, Tempering]:
    """Coordinates to work in, and a first run of `num` particles from a wide base; raises where
    there is nothing to be found.
    """
    key_prior, key_run, key_settle = jax.random.split(key, 3)
    located = find_coordinates(key_prior, request.density, request.dim, request.prior)

    def run(target):
        return tempering(key_run, ScaleMixture(request.dim), target, plan, num_particles=num)

    found = run(located)
    _check(located, found.z, request.prior is not None)
    settled, values = find_runaway(key_settle, located, found.z)
    found = found._replace(values=found.values + values / num)
    if bool(jnp.any(jnp.std(settled, axis=0) > 2 * jnp.std(found.z, axis=0))):
        # A direction far wider than the search began with: once more, in units that fit it.
        wider = Located(
            request.density,
            located.place(jnp.mean(settled, axis=0)),
            located.scale * jnp.std(settled, axis=0),
        )
        again = run(wider)
        return wider, again._replace(
            gradients=found.gradients + again.gradients, values=found.values + again.values
        )
    return located, found


@eqx.filter_jit
def _any_finite(density: AbstractDensity, z: Float[Array, "particles dim"]) -> Any:
    return jnp.any(jnp.isfinite(jax.vmap(density.log_gamma)(z)))


def _check(located: Located, z: Float[Array, "particles dim"], has_prior: bool) -> None:
    width = np.nan_to_num(np.std(np.asarray(z, np.float64), axis=0), nan=np.inf)
    worst = int(np.argmax(width))
    if width[worst] > _ASTRONOMIC:
        # Moves as long as the particles are apart: along a flat direction they grow without end.
        unit = float(located.scale[worst])
        raise RunawayError(worst, unit, unit * float(width[worst]))
    found = bool(_any_finite(located, z))
    check_found(found, jnp.mean(z, axis=0), jnp.std(z, axis=0), has_prior)


def doubts(found: Tempering) -> tuple[str, ...]:
    """What a run says against itself."""
    if float(found.beta) < 1:
        return (
            (
                f"Tempering stopped at β = {float(found.beta):.3f} of 1 after {MAX_LEVELS}"
                " temperatures: the particles are not the target's."
            ),
        )
    return ()


class Stages:
    """Progress in stages instead of steps; the display ends with the block, however that ends."""

    def __init__(self, progress: Any, total: int):
        self._reporter, self._count, self._total = as_reporter(progress), 0, total

    def __enter__(self) -> "Stages":
        self._began = time.perf_counter()
        self._reporter.start(self._total, 0)
        return self

    def __exit__(self, *_: Any) -> None:
        self._reporter.stop()

    def done(self, **measures: Any) -> None:
        """One more stage is done."""
        self._count += 1
        rate = self._count / (time.perf_counter() - self._began)
        self._reporter.update(
            self._count, steps_per_second=rate, **{name: float(x) for name, x in measures.items()}
        )
