"""What single precision makes of the user's density, and how double precision mends it.

In single precision a log density of large terms (counts of 10⁵, many rows) is off by far more than
the standard error of log Z. Where particles are of a density γ' that is the user's γ but for some
rounding, log w + log γ − log γ' are proper weights for γ. Where rounding is no longer small beside
one nat, two compiled programs do not even agree on γ', and all is computed again in double
precision.

A bijection rounds to the border of its support somewhere: beyond that place two particles are the
same. Particles near it say that there is mass beyond, which log Z then lacks. That is a sentence,
and is not repaired. Nothing here samples.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree
from numpyro.distributions.transforms import IdentityTransform

from nestedvi._types import Key
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.base import AbstractDensity, Density, log_values
from nestedvi.densities.numpyro_model import NumpyroModel
from nestedvi.inference.answer import Answer, AnswerFunction, Request
from nestedvi.inference.traced import trace
from nestedvi.particles.weights import log_Z_hat, log_Z_hat_stderr
from nestedvi.precision import double_precision

__all__ = [
    "RoundingError",
    "answer_exactly",
    "check_rounding",
    "exact_target",
    "exactly",
    "in_double",
    "make_exact",
    "missing_values",
    "nothing",
    "rounded_at_the_border",
]

# Rounding of log γ in single precision that weights can mend: its standard deviation.
_ROUNDING = 0.1
# Fewer places without a number than this are chance of the edge of a support.
_MISSING = 1e-3
# So far from the place where a bijection rounds, in unconstrained units, a density that falls like
# the Jacobian has lost all but a few hundredths of its mass.
_NEAR = 3.0
_SHARE = 0.001


def in_double(density: AbstractDensity, like: PyTree) -> AbstractDensity | None:
    """The density on vectors, traced in double precision; None where it already is, or where it
    cannot be.
    """
    if jnp.result_type(float) == jnp.float64:
        return None
    with double_precision():
        flat, unravel = ravel_pytree(jax.tree.map(lambda x: np.asarray(x, np.float64), like))
        try:
            traced = trace(lambda z: density.log_gamma(unravel(z)), flat)
            value = jax.eval_shape(traced, flat)
        except Exception:  # whatever the user's code raises: single precision it is
            return None
    return Density(traced) if value.dtype == jnp.float64 else None


def exact_target(target: Pullback, exact: AbstractDensity | None) -> Pullback:
    """The target in the same coordinates, in double precision where there is such a density. Use it
    inside `double_precision`.
    """
    if exact is None:
        return target
    shift, matrix = (np.asarray(x, np.float64) for x in (target.map.shift, target.map.matrix))
    return Pullback(exact, AffineMap(shift, matrix))


@contextmanager
def exactly(request: Request, target: Pullback) -> Iterator[Pullback]:
    """The target in double precision where the request has such a density, and that precision for
    as long as it is used.
    """
    with nullcontext() if request.exact is None else double_precision():
        yield exact_target(target, request.exact)


class RoundingError(Exception):
    """Single precision does not do for this density; `answer_exactly` turns to double."""


def _checked_rounding(request: Request, z: np.ndarray) -> np.ndarray:
    """log γ in double less that in single precision, at particles in the user's coordinates. Raises
    if it is more than weights can mend, or if the coordinates are too coarse.
    """
    exactly = _exact_values(request, z)
    off = _rounding(exactly, log_values(request.density, z))
    with np.errstate(invalid="ignore"):
        if not np.std(off) < _ROUNDING:
            raise RoundingError
    _check_coordinates(request, z, exactly)
    return off


def _exact_values(request: Request, z: np.ndarray) -> np.ndarray:
    assert request.exact is not None
    with double_precision():
        return log_values(request.exact, z.astype(np.float64))


def _rounding(exactly: np.ndarray, rough: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        off = exactly - rough
    # What has no mass in single precision was never a particle; what has none in double counts as
    # none.
    return np.where(np.isfinite(rough), np.where(np.isnan(off), -np.inf, off), 0.0)


def _check_coordinates(request: Request, z: np.ndarray, exactly: np.ndarray) -> None:
    """Raises if half a unit in the last place of the particles changes log γ: coordinates in single
    precision are too coarse where the density is as narrow as they are far apart. Particles of such
    a neck, as of a hierarchy, fall on its very axis, and their weight would be all there is.
    """
    z = np.asarray(z, np.float64)
    half = np.spacing(np.abs(z).astype(np.float32)).astype(np.float64) / 2
    beside = z + half * np.random.default_rng(len(z)).choice([-1.0, 1.0], size=z.shape)
    with np.errstate(invalid="ignore"):
        change = _exact_values(request, beside) - exactly
    # A particle that has no mass in double has no weight, wherever it is.
    change = np.where(np.isnan(change), 0.0, change)
    if not np.mean(change**2) < _ROUNDING**2:
        raise RoundingError


def check_rounding(request: Request, z: np.ndarray) -> None:
    """Raises `RoundingError` if log γ of these particles, in the user's coordinates, is rounded by
    more than weights can mend.
    """
    if request.exact is not None:
        _checked_rounding(request, z)


def answer_exactly(answer: AnswerFunction, key: Key, request: Request) -> Answer:
    """An answer for the density in double precision: by weights where single precision is all but
    right, else with everything in double.
    """
    try:
        return make_exact(answer(key, request), request)
    except RoundingError:
        assert request.exact is not None
        with double_precision():
            result = answer(key, replace(request, density=request.exact, exact=None, doubled=True))
        return result._replace(exact=True)


def make_exact(answer: Answer, request: Request) -> Answer:
    """The answer with weights, log Z and its standard error for the density in double precision."""
    if request.exact is None or answer.exact:
        return answer
    off = _checked_rounding(request, np.asarray(answer.z))
    log_w = np.asarray(answer.log_w, np.float64) + off
    batch = np.arange(len(log_w)) // -(-len(log_w) // answer.num_batches)
    before, after = (
        np.array([log_Z_hat(w[batch == b]) for b in range(answer.num_batches)])
        for w in (log_w - off, log_w)
    )
    shift = float(log_Z_hat(after) - log_Z_hat(before))
    stderr = max(answer.log_Z_stderr, float(log_Z_hat_stderr(after)[1]))
    if np.std(off) < 1e-3:
        stderr = answer.log_Z_stderr
    return answer._replace(log_w=log_w, log_Z=answer.log_Z + shift, log_Z_stderr=stderr, exact=True)


def missing_values(answer: Answer, request: Request) -> tuple[str, ...]:
    """A sentence if the density is NaN at places among the particles: differences of particles lead
    from one to places as likely as not to be asked for.
    """
    z = np.asarray(answer.z, np.float64)
    rng = np.random.default_rng(len(z))
    one, other = rng.integers(len(z), size=(2, len(z)))
    near = (z + 0.5 * (z[one] - z[other])).astype(np.asarray(answer.z).dtype)
    share = float(np.mean(np.isnan(log_values(request.density, near))))
    if share <= _MISSING:
        return ()
    return (
        f"The log density is NaN at {100 * share:.2g} % of the places among the particles: they"
        " count as no mass. If there should be some, log Z is too low; look for what overflows, or"
        ' use jax.config.update("jax_enable_x64", True).',
    )


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
