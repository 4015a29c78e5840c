"""The first run of every way of answering: from a wide base to particles of the target, in
coordinates that suit them.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key
from nestedvi.densities.affine import Pullback
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.inference.answer import Request
from nestedvi.inference.coordinates import (
    check_mass,
    first_coordinates,
    in_units_as_far,
    in_units_of,
    is_one_point,
)
from nestedvi.inference.exact import check_rounding
from nestedvi.inference.runaway import check_width, settle
from nestedvi.randomness import split_on_host
from nestedvi.smc.tempering import MAX_LEVELS, Plan, Tempering, tempering

__all__ = ["Pilot", "search", "unfinished"]

# A point so far out is where a density wider than the search carried particles to; so many times
# units are made larger.
_FAR, _WIDER = 1e3, 8


class Pilot(NamedTuple):
    """The target in the coordinates to work in, and a first adaptive run to it."""

    target: Pullback
    run: Tempering


def search(key: Key, request: Request, num: int, plan: Plan) -> Pilot:
    """A first run of `num` particles from a wide base; raises where there is no mass, no finite
    normaliser, or all mass on a point.
    """
    key_prior, key_run, key_settle = split_on_host(key, 3)
    target = first_coordinates(key_prior, request)
    run = _run(key_run, request, target, num, plan)
    for _ in range(_WIDER):
        z = np.asarray(run.z)
        if not is_one_point(z) or not _FAR < np.max(np.abs(z)) < np.inf:
            break
        # The draw that was furthest out has won all weight and was carried on from there: to such a
        # density all draws are one point, and only larger units tell.
        target = in_units_as_far(target, z)
        run = _run(key_run, request, target, num, plan)
    check_width(target, run.z, request.names)
    any_finite = bool(np.any(run.log_ratios[-1] > -1e29))
    has_prior = request.prior is not None
    check_mass(any_finite, np.asarray(run.z), has_prior)
    check_rounding(request, np.asarray(target.map(jnp.asarray(run.z))))
    settled, values = settle(key_settle, target, run.z, request.names)
    run = run._replace(values=run.values + values / num)
    if not np.any(settled.std(axis=0) > 2 * np.asarray(run.z).std(axis=0)):
        return Pilot(target, run)
    # A direction far wider than the search began with: once more, in units that fit it.
    wider = in_units_of(target, settled)
    again = _run(key_run, request, wider, num, plan)
    gradients = run.gradients + again.gradients
    return Pilot(wider, again._replace(gradients=gradients, values=run.values + again.values))


def _run(key: Key, request: Request, target: Pullback, num: int, plan: Plan) -> Tempering:
    base, piece = ScaleMixture(request.dim), min(num, request.piece)
    return tempering(key, base, target, plan, num_particles=num, piece=piece, mesh=request.mesh)


def unfinished(run: Tempering) -> tuple[str, ...]:
    """A sentence if a run did not reach the target."""
    if float(run.beta) < 1:
        return (
            f"Tempering stopped at β = {float(run.beta):.3f} of 1 after {MAX_LEVELS} temperatures:"
            " the particles are not the target's.",
        )
    return ()
