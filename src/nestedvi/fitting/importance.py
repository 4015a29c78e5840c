"""Importance sampling from a base: weighted draws, and the base fitted to them (population Monte
Carlo).

A fit starts from the shape of the density at its modes. Each round draws from the base, weights the
draws, and fits means, covariances and weights of the components to them. Nothing here knows where
the modes came from.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.sharding import Mesh
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.compilation import compiled_soon
from nestedvi.densities.affine import covariance_root
from nestedvi.densities.base import AbstractDensity, AbstractSampleable, log_values
from nestedvi.densities.mixtures import StudentMixture, log_radial, squares_on_host
from nestedvi.densities.products import StudentProducts
from nestedvi.fitting.modes import Modes
from nestedvi.host import arrays_on_host, is_on_host, logsumexp, softmax
from nestedvi.particles.weights import ess, khat, log_Z_hat, normalise, normalise_cut
from nestedvi.randomness import split_on_host

__all__ = [
    "NO_MASS",
    "SHORT",
    "Base",
    "Trial",
    "as_number",
    "base_at_modes",
    "draw_many_weighted",
    "draw_weighted",
    "fit_base",
    "log_ratio_at",
    "products_at_modes",
    "refit",
    "weigh",
]

# A log weight of zero mass as a number that can be multiplied with β = 0.
NO_MASS = -1e30
# So many draws are made and weighted at once on an accelerator.
_MOST = 16_384
Base = StudentMixture | StudentProducts

SHORT = 3.0
# A mode whose share of the mass is below e to minus this is left out.
_NEGLIGIBLE = 12.0
# How much of a covariance may come from the draws, the rest from what it was before.
_TRUST = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0)
_ROUNDS = 6
# A component that fewer draws stand for keeps its shape.
_FEWEST = 20.0
# Shares and degrees of freedom of tails that a fit chooses from.
_TAILS = ((0.3, 5), (0.9, 5), (0.9, 2), (0.9, 1))


def weigh(
    base: AbstractSampleable,
    target: AbstractDensity,
    z: Float[Array, "num dim"] | np.ndarray,
    mesh: Mesh | None = None,
) -> np.ndarray:
    """log γ(z) − log q_1(z) for the normalised base, on the host; a NaN is no mass."""
    return as_number(log_values(target, z, mesh) - base.log_prob_many(z))


def log_ratio_at(
    base: AbstractSampleable, target: AbstractDensity, z: Float[Array, " dim"]
) -> Scalar:
    """The same for one draw, in a program."""
    return target.log_gamma(z) - base.log_gamma(z) + base.log_Z


def as_number(log_ratio: np.ndarray) -> np.ndarray:
    """Log ratios of a program, a NaN as no mass."""
    log_ratio = log_ratio.astype(np.float64)
    return np.where(np.isnan(log_ratio), NO_MASS, np.clip(log_ratio, NO_MASS, -NO_MASS))


def draw_many_weighted(
    key: Key, base: AbstractSampleable, target: AbstractDensity, num: int, mesh: Mesh | None = None
) -> tuple[Array | np.ndarray, np.ndarray]:
    """The same from a base that much is drawn from. One accelerator draws and weights in one call,
    or in as many of one size as it takes, which is soon compiled beside what the host would take;
    and it keeps the draws, which few may want.
    """
    if mesh is not None or is_on_host():
        return draw_weighted(key, base, target, num, mesh)
    calls = -(-num // _MOST)
    each = -(-num // calls)
    drawn = [_draw_weighted(k, base, target, each) for k in split_on_host(key, calls)]
    z = drawn[0][0] if calls == 1 else jnp.concatenate([z for z, _ in drawn])[:num]
    return z, as_number(np.concatenate([np.asarray(x) for _, x in drawn])[:num])


@compiled_soon
def _draw_weighted(
    key: Key, base: AbstractSampleable, target: AbstractDensity, num: int
) -> tuple[Float[Array, "num dim"], Float[Array, " num"]]:
    base, target = base.precomputed(), target.precomputed()

    def one(key: Key) -> tuple[Array, Array]:
        z = base.sample(key)
        return z, log_ratio_at(base, target, z)

    return jax.vmap(one)(jax.random.split(key, num))


def draw_weighted(
    key: Key,
    base: AbstractSampleable,
    target: AbstractDensity,
    num: int,
    mesh: Mesh | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`num` draws from the base and their log ratios."""
    z = np.asarray(base.sample_many(key, num))
    return z, weigh(base, target, z, mesh)


class Trial(NamedTuple):
    """A base, and what importance sampling from it gave: log Ẑ, the ESS as a share of the draws,
    k̂, the share of the target where the base has less than e^-SHORT of its due, and the number of
    draws in all rounds.
    """

    base: Base
    log_Z_hat: float
    share: float
    khat: float
    short: float
    draws: int


def _kept(modes: Modes) -> tuple[np.ndarray, np.ndarray]:
    """Log masses, relative to the largest, and which modes a base has components for."""
    log_mass = modes.log_mass - modes.log_mass.max()
    return log_mass, log_mass > -_NEGLIGIBLE


def products_at_modes(modes: Modes, freedom: int, dtype) -> StudentProducts:
    """Independent Student-t coordinates at each mode, as curved there as the density is along that
    coordinate.
    """
    log_mass, kept = _kept(modes)
    # The diagonal of the precision; the covariance of a very narrow mode has no inverse in numbers.
    curvature = np.array([np.sum(np.linalg.inv(root) ** 2, axis=0) for root in modes.roots[kept]])
    scales = np.sqrt((freedom + 1) / freedom / curvature)
    return StudentProducts(*_arrays(dtype, modes.z[kept], scales, log_mass[kept]), freedom=freedom)


def base_at_modes(modes: Modes, dtype) -> StudentMixture:
    """A component a mode, weighted by Laplace's approximation of its mass."""
    log_mass, kept = _kept(modes)
    return StudentMixture(*_arrays(dtype, modes.z[kept], modes.roots[kept], log_mass[kept]))


def _arrays(dtype: Any, *arrays: np.ndarray) -> list[Array]:
    """Of a base that the host draws from and scores."""
    with arrays_on_host():
        return [jnp.asarray(x, dtype) for x in arrays]


def _moments(z: np.ndarray, w_bar: np.ndarray, pull: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and scatter of weighted draws; `pull` is what each counts, less than one in a tail."""
    counted = w_bar * pull
    mean = counted @ z / counted.sum()
    return mean, ((z - mean) * counted[:, None]).T @ (z - mean)


def _mean_log_density(
    z: np.ndarray, w_bar: np.ndarray, pull: np.ndarray, mean: np.ndarray, root: np.ndarray
) -> float:
    square = squares_on_host(z, mean[None], root[None])[0][:, 0]
    return float(-0.5 * (w_bar * pull) @ square - np.log(np.abs(np.diag(root))).sum())


def _fit_component(
    z: np.ndarray, w_bar: np.ndarray, pull: np.ndarray, before: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean, and a root of a scatter between the draws' and the one before: the mixture
    that is likeliest for the half of the draws it was not computed from.
    """
    half = np.arange(len(z)) % 2 == 0
    w_fit, w_held = (w_bar[x] / max(w_bar[x].sum(), 1e-300) for x in (half, ~half))
    mean, scatter = _moments(z[half], w_fit, pull[half])
    old = before @ before.T
    scores = [
        _mean_log_density(
            z[~half], w_held, pull[~half], mean, covariance_root(t * scatter + (1 - t) * old)
        )
        for t in _TRUST
    ]
    # Twice the draws are worth twice the trust, in the odds.
    t = _TRUST[int(np.argmax(scores))]
    t = 2 * t / (1 + t)
    mean, scatter = _moments(z, w_bar, pull)
    return mean, covariance_root(t * scatter + (1 - t) * old)


def refit(base: Base, z: np.ndarray, log_ratio: np.ndarray) -> Base:
    """One step of expectation maximisation on weighted draws."""
    w_bar = normalise_cut(log_ratio)
    if isinstance(base, StudentProducts):
        return _refit_products(base, z, w_bar)
    return _refit_mixture(base, z, w_bar)


def _num_effective(part: np.ndarray, w_bar: np.ndarray) -> float:
    """How many draws stand for a component: the ESS of its part of the weights, and no more than
    its share of the ESS of all. The faint tails of many far draws are not a component's own.
    """
    if not part.any():
        return 0.0
    return float(min(part.sum() ** 2 / np.sum(part**2), part.sum() / np.sum(w_bar**2)))


def _refit_products(base: StudentProducts, z: np.ndarray, w_bar: np.ndarray) -> StudentProducts:
    """Means and scales of every coordinate; a draw far out in one counts less for that one."""
    means, scales = (np.array(x, np.float64) for x in (base.means, base.scales))
    share = softmax(base.log_parts_many(z)) * w_bar[:, None]
    for m, part in enumerate(share.T):
        total = part.sum()
        if _num_effective(part, w_bar) < _FEWEST:
            continue
        square = ((z - means[m]) / scales[m]) ** 2
        pull = (part / total)[:, None] * (base.freedom + 1) / (base.freedom + square)
        means[m] = np.sum(pull * z, axis=0) / pull.sum(axis=0)
        scales[m] = np.sqrt(np.sum(pull * (z - means[m]) ** 2, axis=0))
    log_weights = np.log(share.sum(axis=0) + 1e-4 / len(share.T))
    arrays = _arrays(base.means.dtype, means, scales, log_weights)
    return StudentProducts(*arrays, freedom=base.freedom)


def _refit_mixture(base: StudentMixture, z: np.ndarray, w_bar: np.ndarray) -> StudentMixture:
    """Means, scatters and weights, and the tails that suit the draws best.

    A component that few draws stand for keeps its shape; scatters shrink towards what they were by
    as much as draws that were held out ask for.
    """
    dim, dtype = z.shape[1], base.means.dtype
    means, roots = np.array(base.means, np.float64), np.array(base.roots, np.float64)
    squares, log_det = squares_on_host(z, means, roots)
    log_weights = scipy.special.log_softmax(np.asarray(base.log_weights, np.float64)) - log_det
    tails, freedom = max(
        _TAILS, key=lambda kind: _fit_of_tails(kind, squares, dim, log_weights, w_bar)
    )
    share, pull = _radial(squares, dim, tails, freedom)
    share = softmax(log_weights + share) * w_bar[:, None]
    for m, part in enumerate(share.T):
        total = part.sum()
        if _num_effective(part, w_bar) < max(_FEWEST, dim / 2):
            continue
        means[m], roots[m] = _fit_component(z, part / total, pull[:, m], roots[m])
    log_weights = np.log(share.sum(axis=0) + 1e-4 / len(share.T))
    arrays = _arrays(dtype, means, roots, log_weights)
    return StudentMixture(*arrays, tails=tails, freedom=freedom)


def _radial(
    squares: np.ndarray, dim: int, tails: float, freedom: int
) -> tuple[np.ndarray, np.ndarray]:
    """The log density of a Gaussian with Student tails by squared distance, and how much a draw
    there counts for the scatter: one in the Gaussian, less the further out in the tail.
    """
    normal, student = log_radial(squares, dim, scipy.special.logit(tails), freedom, np)
    total = np.logaddexp(normal, student)
    in_tail = np.exp(student - total)
    return total, 1 - in_tail + in_tail * (freedom + dim) / (freedom + squares)


def _fit_of_tails(
    kind: tuple[float, int],
    squares: np.ndarray,
    dim: int,
    log_weights: np.ndarray,
    w_bar: np.ndarray,
) -> float:
    """The mean log density of weighted draws under the mixture with such tails."""
    radial, _ = _radial(squares, dim, *kind)
    return float(w_bar @ logsumexp(log_weights + radial))


def fit_base(
    key: Key, base: Base, target: AbstractDensity, *, num: int, good: float, least: float = 0.0
) -> Trial:
    """Rounds of `num` draws until importance sampling keeps a share `good` of them, a round brings
    little, or two of them keep less than `least`; the best base that was tried.
    """
    trials: list[Trial] = []
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    for k in split_on_host(key, _ROUNDS):
        z, log_ratio = draw_weighted(k, base, target, num)
        z = z.astype(np.float64)
        seen.append((z, log_ratio))
        share, log_Z = float(ess(log_ratio)) / num, float(log_Z_hat(log_ratio))
        short = float(normalise(log_ratio)[log_ratio > log_Z + SHORT].sum())
        draws = (len(trials) + 1) * num
        trials.append(Trial(base, log_Z, share, khat(log_ratio), short, draws))
        # The first refit may be as noisy as its few effective draws: judge from the second on.
        is_hopeless = len(trials) == 2 and max(trial.share for trial in trials) < least
        if share > good or is_hopeless or (len(trials) > 2 and share < 1.1 * trials[-2].share):
            break
        # Draws of every round are properly weighted; those of the first bases are worth little.
        base = refit(base, *(np.concatenate(x) for x in zip(*seen[-3:], strict=True)))
    return _best(trials, num)._replace(draws=draws)


def _best(trials: list[Trial], num: int) -> Trial:
    """The one that keeps most of its draws, among those whose Ẑ is not clearly below another's: a
    base that misses a mode knows nothing of it and may keep all of its draws.
    """
    errors = [4 * np.sqrt((1 / trial.share - 1) / num) for trial in trials]
    at_least = max(trial.log_Z_hat - error for trial, error in zip(trials, errors, strict=True))
    whole = [
        trial
        for trial, error in zip(trials, errors, strict=True)
        if trial.log_Z_hat + error >= at_least
    ]
    return max(whole, key=lambda trial: trial.share)
