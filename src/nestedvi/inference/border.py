"""Is there mass that the precision at hand cannot hold? A bijection rounds to the border of its
support somewhere: beyond that place two particles are the same. Particles near it say that there is
mass beyond, which log Z then lacks. It is a sentence; nothing is repaired here.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpyro.distributions.transforms import IdentityTransform

from nestedvi.densities.numpyro_model import NumpyroModel

__all__ = ["nothing", "rounded_at_the_border"]

# So far from the place where a bijection rounds, in unconstrained units, a density that falls like
# the Jacobian has lost all but a few hundredths of its mass.
_NEAR = 3.0
_SHARE = 0.001


def nothing(z: Float[Array, "particles dim"], weights: np.ndarray) -> tuple[str, ...]:
    """What there is to say of particles whose coordinates are the user's own."""
    return ()


def rounded_at_the_border(
    model: NumpyroModel,
    unravel: Callable[[Array], PyTree],
    z: Float[Array, "particles dim"],
    weights: Float[np.ndarray, " particles"],
) -> tuple[str, ...]:
    """A sentence for each site with more than a thousandth of its mass at the border.

    Sites whose density is computed in unconstrained coordinates are exact there.
    """
    bijections = {
        name: bijection
        for name, bijection in model.bijections().items()
        if name not in model.exact
        and not isinstance(bijection, IdentityTransform)
        and bijection.domain.event_dim == bijection.codomain.event_dim == 0
    }
    if not bijections:
        return ()
    sites = jax.vmap(unravel)(jnp.asarray(z))
    sentences = []
    for name, bijection in bijections.items():
        x = np.asarray(sites[name])
        near = np.zeros(x.shape, dtype=bool)
        for step in (-_NEAR, _NEAR):
            near |= _same(bijection, x + x.dtype.type(step), x + x.dtype.type(2 * step))
        share = float(np.sum(weights * near.reshape(len(x), -1).any(axis=1)))
        if share > _SHARE:
            sentences.append(
                f"{100 * share:.2g} % of the mass of {name!r} is at the border of its support,"
                f" where {x.dtype} rounds: mass beyond is missing from log Z. Use"
                ' jax.config.update("jax_enable_x64", True), or a site on the logit or log scale.'
            )
    return tuple(sentences)


def _same(bijection: Callable, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether two coordinates have one image."""
    with np.errstate(all="ignore"):
        return np.asarray(bijection(jnp.asarray(x)) == bijection(jnp.asarray(y)))
