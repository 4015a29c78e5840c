"""NumPyro handlers that keep a model's log density exact on unconstrained coordinates.

Two things go wrong without them. A latent site under a mask leaves coordinates without a density,
and the posterior is improper in them although nothing depends on them: `obs_mask` makes such sites.
And a Beta or Dirichlet site near the border of its support is rounded there before its density is
computed. Handlers see one message at a time; they run nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax.scipy.special import betaln
from numpyro.distributions import Beta, Dirichlet, Distribution, MaskedDistribution
from numpyro.primitives import Messenger

__all__ = ["Exactly", "core", "is_exact", "mask_of", "without_mask"]

_LAYERS = ("ExpandedDistribution", "Independent", "MaskedDistribution")


def core(fn: Any) -> Any:
    """The distribution under expansions and masks."""
    while hasattr(fn, "base_dist") and type(fn).__name__ in _LAYERS:
        fn = fn.base_dist
    return fn


def without_mask(fn: Any) -> Any:
    while isinstance(fn, MaskedDistribution):
        fn = fn.base_dist
    return fn


def mask_of(fn: Any) -> Any:
    """What the masks of a distribution leave, True where there is none."""
    mask: Any = True
    while isinstance(fn, MaskedDistribution):
        mask, fn = fn._mask & mask, fn.base_dist
    return mask


def _log_det_name(site: str) -> str:
    """What NumPyro calls the factor that holds the log determinant of a site's bijection."""
    return f"_{site}_log_det"


class Exactly(Messenger):
    """A model whose sites `unmasked` have their own density everywhere, and whose Beta and
    Dirichlet sites have it in the unconstrained coordinates `z`, where nothing is rounded.

    A coordinate that nothing depends on integrates to one under its own density, whatever the mask
    left of it: log Z stays as it is.
    """

    def __init__(
        self,
        fn: Callable,
        unmasked: frozenset[str] = frozenset(),
        z: Mapping[str, jax.Array] | None = None,
    ):
        self.unmasked, self.z = unmasked, dict(z or {})
        self._factors = {_log_det_name(name) for name in unmasked}
        self._replaced: set[str] = set()
        super().__init__(fn)

    def __enter__(self) -> Any:
        self._replaced = set()
        return super().__enter__()

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample":
            return
        name = msg["name"]
        if name in self.unmasked or name in self._factors:
            msg["fn"] = without_mask(msg["fn"])
        if name in self._replaced:
            msg["fn"] = msg["fn"].mask(False)
        elif name in self.z and not msg["is_observed"] and is_exact(msg):
            self._replaced |= {name, _log_det_name(name)}
            log_density = _log_density(msg["fn"], self.z[name])
            msg["fn"] = msg["fn"].mask(False)
            numpyro.factor(f"_{name}_exactly", log_density)


def is_exact(site: Mapping[str, Any]) -> bool:
    """Whether `Exactly` computes the density of this site in unconstrained coordinates.

    Inside of a scan these hold all steps, and the site is one of them.
    """
    return (
        isinstance(core(site["fn"]), Beta | Dirichlet)
        and mask_of(site["fn"]) is True
        and "_scan_current_index" not in site["infer"]
    )


def _log_density(fn: Distribution, z: jax.Array) -> jax.Array:
    """Of z = T⁻¹(x) with x ~ fn, a Beta or a Dirichlet: one number for each of fn's batch."""
    plain = core(fn)
    if isinstance(plain, Beta):
        log_density = _log_beta(plain.concentration1, plain.concentration0, z)
    else:
        # A broken stick: independent Beta shares of what is left, the logits shifted as NumPyro
        # does, so that z = 0 is the centre of the simplex.
        a = plain.concentration
        left = jnp.flip(jnp.cumsum(jnp.flip(a, -1), -1), -1)
        shift = jnp.log(jnp.arange(a.shape[-1] - 1, 0, -1).astype(z.dtype))
        log_density = jnp.sum(_log_beta(a[..., :-1], left[..., 1:], z - shift), axis=-1)
    more = fn.event_dim - plain.event_dim
    return jnp.sum(log_density, axis=tuple(range(-more, 0))) if more else log_density


def _log_beta(a: jax.Array, b: jax.Array, logit: jax.Array) -> jax.Array:
    return a * jax.nn.log_sigmoid(logit) + b * jax.nn.log_sigmoid(-logit) - betaln(a, b)
