"""Where a search begins, and the errors that say why it ended with nothing to work on."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.errors import DensityError
from nestedvi.inference.answer import Request

__all__ = ["check_mass", "first_coordinates", "in_units_of"]

_ROUNDING = 10.0


def first_coordinates(key: Key, request: Request) -> Pullback:
    """The density around the prior's draws and in units of their spread, or around the origin."""
    if request.prior is None:
        return Pullback(request.density, AffineMap(jnp.zeros(request.dim), jnp.ones(request.dim)))
    draws = request.prior(key, 1000)
    low, centre, high = jnp.quantile(draws, jnp.array([0.16, 0.5, 0.84]), axis=0)
    return Pullback(request.density, AffineMap(centre, jnp.maximum((high - low) / 2, 1e-6)))


def in_units_of(
    target: Pullback, z: Float[Array, "particles dim"], *, width: float = 1.0
) -> Pullback:
    """The same density in coordinates where these particles are centred and `width` wide."""
    scale = target.map.matrix * jnp.std(z, axis=0) / width
    return Pullback(target.density, AffineMap(target.map(jnp.mean(z, axis=0)), scale))


def check_mass(
    any_finite: bool, mean: Float[Array, " dim"], spread: Float[Array, " dim"], has_prior: bool
) -> None:
    """Raises `DensityError` if no particle ended where the density has mass, or all of them on one
    point.
    """
    if not any_finite:
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
