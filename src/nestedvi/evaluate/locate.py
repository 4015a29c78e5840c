"""Where a target's mass is, or the sentence that says why it cannot be found: what every way of answering starts with."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity
from nestedvi.errors import DensityError
from nestedvi.evaluate.answer import PriorDraws
from nestedvi.evaluate.pilot import Pilot, pilot
from nestedvi.evaluate.runaway import RunawayError, settle

__all__ = ["Located", "check_found", "find_coordinates", "find_runaway", "locate"]


class Located(AbstractDensity):
    """A density in coordinates u with z = centre + scale · u."""

    density: AbstractDensity
    centre: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        return self.density.log_gamma(self.place(z))

    def place(self, u: Float[Array, "*rest dim"]) -> Float[Array, "*rest dim"]:
        """The density's own coordinates."""
        return self.centre + self.scale * u


def find_coordinates(key: Key, density: AbstractDensity, dim: int, prior: PriorDraws | None = None) -> Located:
    """Where a search begins: around the prior's draws and in units of their spread, or around the origin."""
    if prior is None:
        return Located(density, jnp.zeros(dim), jnp.ones(dim))
    low, centre, high = jnp.quantile(prior(key, 1000), jnp.array([0.16, 0.5, 0.84]), axis=0)
    return Located(density, centre, jnp.maximum((high - low) / 2, 1e-6))


def find_runaway(key: Key, located: Located, z: Float[Array, "particles dim"]) -> tuple[Float[Array, "particles dim"], int]:
    """The particles after their widths settled, and how many values of the density that took; `RunawayError`, in the density's
    own units, if they spread without end."""
    try:
        return settle(key, located.log_gamma, z)
    except RunawayError as error:
        unit = float(np.asarray(located.scale)[error.coordinate])
        raise RunawayError(error.coordinate, unit * error.before, unit * error.after) from None


def locate(key: Key, density: AbstractDensity, dim: int, prior: PriorDraws | None = None) -> tuple[Pilot, tuple[str, ...]]:
    """A pilot run in the density's coordinates, and what is doubtful about it in whole sentences.

    Where the model has a prior, the search starts around its draws and in units of their spread; else around the origin. Raises
    `DensityError` if it finds no mass at all, or if the mass runs away.
    """
    key_prior, key_pilot, key_settle = jax.random.split(key, 3)
    located = find_coordinates(key_prior, density, dim, prior)
    place = pilot(key_pilot, located.log_gamma, dim)
    check_found(bool(place.found), place.mean, place.spread, prior is not None)
    settled, _ = find_runaway(key_settle, located, place.z)
    doubts: tuple[str, ...] = ()
    if float(place.beta) < 1:
        doubts = (
            f"The search for the target's place stopped at β = {float(place.beta):.3f} of 1: the sampler may have started far "
            "from the mass.",
        )
    if bool(jnp.any(jnp.std(settled, axis=0) > 2 * place.spread)):
        # A direction far wider than the search began with: the pilot stopped before it had filled it.
        place = place._replace(z=settled, mean=jnp.mean(settled, axis=0), spread=jnp.std(settled, axis=0))
    mean, spread, z = located.place(place.mean), located.scale * place.spread, located.place(place.z)
    return place._replace(z=z, mean=mean, spread=spread), doubts


def check_found(found: bool, mean: Float[Array, " dim"], spread: Float[Array, " dim"], has_prior: bool) -> None:
    """Raises `DensityError` if no particle ended where the density has mass, or all of them on one point."""
    if not found:
        where = "around draws of the prior" if has_prior else "centred Gaussians of scale 0.3 to 30"
        hint = "Check the data against the model." if has_prior else "Shift or rescale it so that some of its mass is there."
        raise DensityError(f"The log density is NaN or −inf wherever the search looked ({where}). {hint}")
    if not bool(jnp.all(jnp.isfinite(mean) & jnp.isfinite(spread) & (spread > 0))):
        raise DensityError(
            f"The search ended with all particles on one point (near {float(jnp.max(jnp.abs(mean))):.3g}): the density "
            "grows without bound there, or its mass is too narrow to follow. Check its sign and its scale."
        )
