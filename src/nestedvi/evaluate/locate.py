"""Where a target's mass is, or the sentence that says why it cannot be found: what every way of answering starts with."""

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key
from nestedvi.densities.base import AbstractDensity
from nestedvi.errors import DensityError
from nestedvi.evaluate.answer import PriorDraws
from nestedvi.evaluate.pilot import Pilot, pilot
from nestedvi.evaluate.runaway import RunawayError, settle

__all__ = ["locate"]


def locate(key: Key, density: AbstractDensity, dim: int, prior: PriorDraws | None = None) -> tuple[Pilot, tuple[str, ...]]:
    """A pilot run in the density's coordinates, and what is doubtful about it in whole sentences.

    Where the model has a prior, the search starts around its draws and in units of their spread; else around the origin. Raises
    `DensityError` if it finds no mass at all, or if the mass runs away.
    """
    key_prior, key_pilot, key_settle = jax.random.split(key, 3)
    centre, scale = jnp.zeros(dim), jnp.ones(dim)
    if prior is not None:
        low, centre, high = jnp.quantile(prior(key_prior, 1000), jnp.array([0.16, 0.5, 0.84]), axis=0)
        scale = jnp.maximum((high - low) / 2, 1e-6)
    log_gamma = lambda u: density.log_gamma(centre + scale * u)  # noqa: E731
    place = pilot(key_pilot, log_gamma, dim)
    _check_found(place, prior is not None)
    try:
        settled = settle(key_settle, log_gamma, place.z)
    except RunawayError as error:
        unit = float(np.asarray(scale)[error.coordinate])
        raise RunawayError(error.coordinate, unit * error.before, unit * error.after) from None
    doubts: tuple[str, ...] = ()
    if float(place.beta) < 1:
        doubts = (
            f"The search for the target's place stopped at β = {float(place.beta):.3f} of 1: the sampler may have started far "
            "from the mass.",
        )
    if bool(jnp.any(jnp.std(settled, axis=0) > 2 * place.spread)):
        # A direction far wider than the search began with: the pilot stopped before it had filled it.
        place = place._replace(z=settled, mean=jnp.mean(settled, axis=0), spread=jnp.std(settled, axis=0))
    mean, spread, z = centre + scale * place.mean, scale * place.spread, centre + scale * place.z
    return place._replace(z=z, mean=mean, spread=spread), doubts


def _check_found(place: Pilot, has_prior: bool) -> None:
    if not bool(place.found):
        where = "around draws of the prior" if has_prior else "centred Gaussians of scale 0.3 to 30"
        hint = "Check the data against the model." if has_prior else "Shift or rescale it so that some of its mass is there."
        raise DensityError(f"The log density is NaN or −inf wherever the search looked ({where}). {hint}")
    if not bool(jnp.all(jnp.isfinite(place.mean) & jnp.isfinite(place.spread) & (place.spread > 0))):
        raise DensityError(
            f"The search ended with all particles on one point (near {float(jnp.max(jnp.abs(place.mean))):.3g}): the density "
            "grows without bound there, or its mass is too narrow to follow. Check its sign and its scale."
        )
