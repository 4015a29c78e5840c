"""A Gaussian that is nearest to a density in reverse KL, for so many dimensions that neither draws
nor particles can feed a covariance.

It maximises the bound on log Z, E_q[log γ] plus the entropy of q. Steps with independent
coordinates come first (Kucukelbir et al. 2017). Then a Newton step replaces the precision by the
mean of −∂² log γ under q, and moves the mean by the mean slope in that metric: at the top both stay
(Opper and Archambeau 2009). A Hessian says as much of a covariance as dim draws do. Unlike a mode,
the fit looks at log γ as far around as its own draws are. It refuses to look for several modes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from nestedvi._types import Key
from nestedvi.compilation import compiled_soon
from nestedvi.densities.affine import lower_root
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, log_values
from nestedvi.densities.given import NormalGiven
from nestedvi.densities.low_rank import LowRankNormal, low_rank_of
from nestedvi.densities.mixtures import StudentMixture
from nestedvi.fitting.modes import mean_curvature, slopes
from nestedvi.fitting.richer import in_precision_at_hand
from nestedvi.host import arrays_on_host, on_host
from nestedvi.randomness import generator, split_on_host

Rng = np.random.Generator
__all__ = ["Gaussian", "fit_variational"]

# Steps with independent coordinates: how many, pairs of draws at each, their rate, and how wide the
# coordinates are at first. The last quarter of the steps is at a tenth of the rate.
_STEPS, _PAIRS, _RATE, _FIRST_WIDTH = 400, 8, 0.05, 0.15
# A slope counts for no more than so many times its length under a standard Gaussian.
_STEEPEST = 50.0
# Newton steps: whole ones as long as the bound gains, then some that go this share of the way and
# average the noise of their draws. Each takes so many rows of Hessians, within limits on the number
# of those.
_WHOLE, _AVERAGED, _SHARE = 12, 8, 0.3
_ROWS, _FEWEST_AND_MOST = 4096, (4, 32)
# Curvatures, in units of the precision before, are believed between these.
_FLATTEST, _SHARPEST = 0.05, 20.0
# Coordinates of which particles say something else by so many standard errors; so many of them, so
# that programs for one number serve another.
_TELLING, _FEW = 6.0, (4, 8, 16)
# The bound is judged by so many draws, and may fall by so many of its standard errors.
_JUDGES, _SLACK = 256, 3.0


class Gaussian(NamedTuple):
    """Its mean and a lower root of its covariance, the bound on log Z, and the gradients it took, a
    product with the Hessian counted as two.
    """

    mean: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"]
    bound: float
    gradients: int

    def wrong_in(self, z: Float[np.ndarray, "data dim"], num: int) -> np.ndarray:
        """The coordinates whose particles, `num` of which are independent, have another mean or
        spread: one that is nearest in reverse KL is too narrow where a posterior is skew. None, or
        one of a few numbers of them, filled up with the next in order.
        """
        z, widths = np.asarray(z, np.float64), np.linalg.norm(self.root, axis=1)
        shift, ratio = (z.mean(axis=0) - self.mean) / widths, z.std(axis=0) / widths
        # In standard errors; the one of a log width is smaller by a half's root.
        off = np.maximum(np.abs(shift), np.abs(np.log(ratio)) * 2**0.5) * num**0.5
        wrong = int(np.sum(off > _TELLING))
        most = next((few for few in _FEW if few >= wrong), _FEW[-1])
        return np.sort(np.argsort(-off, kind="stable")[: most if wrong else 0])

    def given(self, some: np.ndarray, part: AbstractSampleable) -> NormalGiven:
        """With another density of some coordinates, and itself given those."""
        rest = np.setdiff1d(np.arange(len(self.mean)), some)
        order, num = np.concatenate([some, rest]), len(some)
        root = lower_root(np.ones(len(order)), self.root[order])
        slope = root[num:, :num] @ np.linalg.inv(root[:num, :num])
        mean = self.mean[rest] - slope @ self.mean[some]
        others = LowRankNormal(mean, low_rank_of(root[num:, num:]))
        return in_precision_at_hand(NormalGiven(part, some, others, slope))

    def as_mixture(self, dtype: Any) -> StudentMixture:
        """With tails, for draws that are weighted."""
        with arrays_on_host():
            arrays = (jnp.asarray(x, dtype)[None] for x in (self.mean, self.root, 0.0))
            return StudentMixture(*arrays)


class _Fit(NamedTuple):
    """A Gaussian on the way, with any root of its covariance; the bound and its standard error."""

    mean: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"]
    bound: float
    error: float


class _Independent(NamedTuple):
    """Means and log widths of independent coordinates."""

    mean: Float[Array, " dim"]
    log_width: Float[Array, " dim"]


def fit_variational(
    key: Key, density: AbstractDensity, starts: Float[np.ndarray, "starts dim"]
) -> Gaussian | None:
    """From the best of several places; None where the bound is no number at any."""
    dim, dtype = np.shape(starts)[1], jnp.result_type(float)
    *keys, key_host = split_on_host(key, len(starts) + 1)
    rng = generator(key_host)
    with on_host(density, _slope, jnp.zeros(dim, dtype), 2 * _STEPS * _PAIRS) as there:
        places = [
            jax.device_get(_independent(k, there, jnp.asarray(start, dtype)))
            for k, start in zip(keys, starts, strict=True)
        ]
    fits = [_judged(rng, density, one.mean, np.diag(np.exp(one.log_width))) for one in places]
    best = max(fits, key=lambda fit: fit.bound)
    if best.bound == -np.inf:
        return None
    pairs = int(np.clip(_ROWS // dim, *_FEWEST_AND_MOST))
    best, rounds = _converged(rng, density, best, pairs)
    for _ in range(_AVERAGED):
        tried = _newton(rng, density, best, pairs, _SHARE)
        if tried.bound > best.bound - _SLACK * best.error:
            best = tried
    gradients = 2 * _STEPS * _PAIRS * len(starts) + (rounds + _AVERAGED) * 2 * pairs * (1 + dim)
    return Gaussian(best.mean, lower_root(np.ones(dim), best.root), best.bound, gradients)


def _slope(density: AbstractDensity, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
    return jax.grad(density.log_gamma)(z)


@compiled_soon
def _independent(key: Key, density: AbstractDensity, start: Float[Array, " dim"]) -> _Independent:
    """Stochastic gradient steps on the bound, from one place."""
    ready, dim = density.precomputed(), start.shape[0]
    steepest = _STEEPEST * dim**0.5

    def uphill(q: _Independent, key: Key) -> _Independent:
        eps = jax.random.normal(key, (_PAIRS, dim), start.dtype)
        eps, width = jnp.concatenate([eps, -eps]), jnp.exp(q.log_width)
        slope = jax.vmap(_slope, in_axes=(None, 0))(ready, q.mean + width * eps)
        # Where there is no mass no slope leads back; those of the other draws do.
        slope = jnp.where(jnp.all(jnp.isfinite(slope), axis=1, keepdims=True), slope, 0.0)
        length = jnp.linalg.norm(slope * width, axis=1, keepdims=True)
        slope = slope * jnp.minimum(1.0, steepest / jnp.maximum(length, 1e-30))
        return _Independent(jnp.mean(slope, 0), jnp.mean(slope * eps, 0) * width + 1)

    rate = optax.piecewise_constant_schedule(_RATE, {3 * _STEPS // 4: 0.1})
    optimiser = optax.adam(rate)
    first = _Independent(start, jnp.full_like(start, np.log(_FIRST_WIDTH)))

    def step(now: Any, key: Key) -> tuple[Any, None]:
        q, state = now
        downhill = jax.tree.map(jnp.negative, uphill(q, key))
        updates, state = optimiser.update(downhill, state)
        return (optax.apply_updates(q, updates), state), None

    keys = jax.random.split(key, _STEPS)
    return jax.lax.scan(step, (first, optimiser.init(first)), keys)[0][0]


def _judged(rng: Rng, density: AbstractDensity, mean: np.ndarray, root: np.ndarray) -> _Fit:
    """With the bound, from draws of its own; no mass at one of them is a bound of −∞."""
    mean, root = np.asarray(mean, np.float64), np.asarray(root, np.float64)
    eps = rng.normal(size=(_JUDGES, len(mean)))
    log_q = -0.5 * np.sum(eps**2, axis=1) - 0.5 * len(mean) * np.log(2 * np.pi)
    log_ratio = log_values(density, mean + eps @ root.T) - log_q
    if not np.isfinite(log_ratio).all():
        return _Fit(mean, root, -np.inf, np.inf)
    bound = float(np.mean(log_ratio) + np.linalg.slogdet(root)[1])
    return _Fit(mean, root, bound, float(np.std(log_ratio)) / _JUDGES**0.5)


def _converged(rng: Rng, density: AbstractDensity, q: _Fit, pairs: int) -> tuple[_Fit, int]:
    """Whole steps until the bound gains nothing, and how many. One that lowers it was too long."""
    share, rounds, gains = 1.0, 0, True
    while gains and rounds < _WHOLE:
        tried = _newton(rng, density, q, pairs, share)
        rounds += 1
        gain, chance = tried.bound - q.bound, _SLACK * q.error
        if gain < -chance:
            share /= 2
        else:
            q, gains = tried, gain > chance
    return q, rounds


def _newton(rng: Rng, density: AbstractDensity, q: _Fit, pairs: int, share: float) -> _Fit:
    """So much of the way to the mean curvature and the place where the mean slope is none."""
    eps = rng.normal(size=(pairs, len(q.mean)))
    z = q.mean + np.concatenate([eps, -eps]) @ q.root.T
    slope, curvature = slopes(density, z).mean(axis=0), mean_curvature(density, z[:pairs])
    if not np.isfinite(curvature).all():
        return q._replace(bound=-np.inf)
    values, vectors = np.linalg.eigh(q.root.T @ curvature @ q.root)
    precision = 1 + share * (np.clip(values, _FLATTEST, _SHARPEST) - 1)
    root = (q.root @ vectors) / np.sqrt(precision)
    step = root.T @ slope
    # No further than to where draws are.
    size = share * min(1.0, len(step) ** 0.5 / max(float(np.linalg.norm(step)), 1e-30))
    return _judged(rng, density, q.mean + size * (root @ step), root)
