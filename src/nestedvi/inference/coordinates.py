"""Where a search begins, and the sentence that says why it found nothing."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractDensity
from nestedvi.errors import DensityError
from nestedvi.inference.answer import PriorDraws
from nestedvi.inference.runaway import RunawayError, settle

__all__ = ["Located", "check_found", "find_coordinates", "find_runaway"]

_ROUNDING = 10.0


class Located(AbstractDensity):
    """A density in coordinates u with z = centre + scale · u; the determinant is counted, so that
    log Z is the same.
    """

    density: AbstractDensity
    centre: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        return self.density.log_gamma(self.place(z)) + jnp.sum(jnp.log(self.scale))

    def place(self, u: Float[Array, "*rest dim"]) -> Float[Array, "*rest dim"]:
        """The density's own coordinates."""
        return self.centre + self.scale * u


def find_coordinates(
    key: Key, density: AbstractDensity, dim: int, prior: PriorDraws | None = None
) -> Located:
    """Where a search begins: around the prior's draws and in units of their spread, or around the
    origin.
    """
    if prior is None:
        return Located(density, jnp.zeros(dim), jnp.ones(dim))
    low, centre, high = jnp.quantile(prior(key, 1000), jnp.array([0.16, 0.5, 0.84]), axis=0)
    return Located(density, centre, jnp.maximum((high - low) / 2, 1e-6))


def find_runaway(
    key: Key, located: Located, z: Float[Array, "particles dim"]
) -> tuple[Float[Array, "particles dim"], int]:
    """The particles after their widths settled, and how many values of the density that took;
    `RunawayError`, in the density's own units, if they spread without end."""
    try:
        return settle(key, located.log_gamma, z)
    except RunawayError as error:
        unit = float(np.asarray(located.scale)[error.coordinate])
        raise RunawayError(error.coordinate, unit * error.before, unit * error.after) from None


def check_found(
    found: bool, mean: Float[Array, " dim"], spread: Float[Array, " dim"], has_prior: bool
) -> None:
    """Raises `DensityError` if no particle ended where the density has mass, or all of them on one
    point.
    """
    if not found:
        where = "around draws of the prior" if has_prior else "centred Gaussians of scale 0.3 to 30"
        hint = (
            "Check the data against the model."
            if has_prior
            else "Shift or rescale it so that some of its mass is there."
        )
        raise DensityError(
            f"The log density is NaN or −inf wherever the search looked ({where}). {hint}"
        )
    # Far away, particles on one point still differ by their rounding.
    least = _ROUNDING * jnp.finfo(spread.dtype).eps * jnp.abs(mean)
    if not bool(jnp.all(jnp.isfinite(mean) & jnp.isfinite(spread) & (spread > least))):
        raise DensityError(
            "The search ended with all particles on one point (near"
            f" {float(jnp.max(jnp.abs(mean))):.3g}): the density grows without bound there, or its"
            " mass is too narrow to follow. Check its sign and its scale."
        )
