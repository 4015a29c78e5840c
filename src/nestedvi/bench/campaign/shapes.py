"""Cases that are log densities: modes of several widths, funnels, bananas, tails, scales. All are
normalised or nearly so, by construction.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from nestedvi.bench.campaign.case import Case, Spec
from nestedvi.targets import Target, get_target, rotated

__all__ = ["SHAPES"]

_LOG_2PI = float(np.log(2 * np.pi))


def _log_normal(x: jax.Array, mean: Any = 0.0, sd: Any = 1.0) -> jax.Array:
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(jnp.asarray(sd)) - 0.5 * _LOG_2PI


def known(name: str, turned: bool = False) -> Case:
    """A target of the catalogue."""
    target: Target = get_target(name)
    if turned:
        target = rotated(target, 1)
    return Case(target.build(), {"dim": target.dim}, target.known_log_Z)


def gaussians(means: np.ndarray, sds: np.ndarray, weights: np.ndarray) -> Case:
    """Σ_k w_k N(m_k, s_k² I)."""
    dim = means.shape[1]

    def log_density(z: jax.Array) -> jax.Array:
        log_parts = jnp.sum(_log_normal(z, jnp.asarray(means), jnp.asarray(sds)[:, None]), axis=1)
        return jax.nn.logsumexp(log_parts + jnp.log(jnp.asarray(weights)))

    mean = weights @ means
    variance = weights @ (means**2 + sds[:, None] ** 2) - mean**2
    return Case(log_density, {"dim": dim}, 0.0, {"z": (mean, np.sqrt(variance))})


def spike_and_slab(dim: int, sd: float, share: float) -> Case:
    """A narrow Gaussian inside of a wide one."""
    return gaussians(np.zeros((2, dim)), np.array([sd, 1.0]), np.array([share, 1 - share]))


def two_widths(dim: int, sd: float, apart: float) -> Case:
    """Two modes of equal mass, one of them narrower; `apart` in widths of the wider."""
    place = np.ones(dim) * apart / (2 * np.sqrt(dim))
    return gaussians(np.stack([-place, place]), np.array([1.0, sd]), np.array([0.5, 0.5]))


def scattered(dim: int, num: int, half_width: float) -> Case:
    """Modes of unit width, scattered over a cube."""
    means = np.random.default_rng(0).uniform(-half_width, half_width, size=(num, dim))
    return gaussians(means, np.ones(num), np.full(num, 1 / num))


def students(dim: int, num: int, half_width: float, freedom: float) -> Case:
    """Products of Student-t factors, scattered over a cube."""
    means = np.random.default_rng(0).uniform(-half_width, half_width, size=(num, dim))
    constant = float(stats.t(freedom).logpdf(0.0))

    def log_density(z: jax.Array) -> jax.Array:
        square = (z - jnp.asarray(means)) ** 2 / freedom
        log_parts = jnp.sum(constant - 0.5 * (freedom + 1) * jnp.log1p(square), axis=1)
        return jax.nn.logsumexp(log_parts) - np.log(num)

    mean = means.mean(axis=0) if freedom > 1 else np.full(dim, np.nan)
    return Case(log_density, {"dim": dim}, 0.0, {"z": (mean, np.full(dim, np.nan))})


def funnel(dim: int) -> Case:
    """x_0 ~ N(0, 3²), the others N(0, exp(x_0))."""

    def log_density(z: jax.Array) -> jax.Array:
        rest = -0.5 * z[1:] ** 2 * jnp.exp(-z[0]) - 0.5 * z[0] - 0.5 * _LOG_2PI
        return _log_normal(z[0], 0.0, 3.0) + jnp.sum(rest)

    unknown = np.full(dim - 1, np.nan)
    return Case(
        log_density, {"dim": dim}, 0.0, {"z": (np.append(0.0, unknown), np.append(3.0, unknown))}
    )


def banana(dim: int) -> Case:
    """x_0 ~ N(0, 2²), x_1 ~ N(x_0²/2 − 2, ½²), and standard normal ones."""

    def log_density(z: jax.Array) -> jax.Array:
        bent = _log_normal(z[1], 0.5 * z[0] ** 2 - 2.0, 0.5)
        return _log_normal(z[0], 0.0, 2.0) + bent + jnp.sum(_log_normal(z[2:]))

    # Var x_1 = Var(x_0²)/4 + ¼ = 2·16/4 + ¼.
    sds = np.concatenate([[2.0, np.sqrt(8.25)], np.ones(dim - 2)])
    return Case(log_density, {"dim": dim}, 0.0, {"z": (np.zeros(dim), sds)})


def gaussian(sds: np.ndarray, turned: bool) -> Case:
    """A Gaussian of many scales, along the axes or turned."""
    dim = len(sds)
    q = np.linalg.qr(np.random.default_rng(1).normal(size=(dim, dim)))[0] if turned else None
    along = np.sqrt((q**2) @ sds**2) if q is not None else sds

    def log_density(z: jax.Array) -> jax.Array:
        return jnp.sum(_log_normal(z if q is None else z @ jnp.asarray(q), 0.0, jnp.asarray(sds)))

    return Case(log_density, {"dim": dim}, 0.0, {"z": (np.zeros(dim), along)})


def wide() -> Case:
    """exp(−|z|² / 2·10⁵²): proper, and wider than most numbers."""
    log_Z = 3 * (26 * np.log(10.0) + 0.5 * _LOG_2PI)
    return Case(lambda z: -0.5 * jnp.sum((z / 1e26) ** 2), {"dim": 3}, log_Z)


def nan_corner() -> Case:
    """A standard Gaussian whose log density is NaN for one draw in ten thousand, which counts as no
    mass.
    """
    border = float(stats.norm.isf(1e-4))

    def log_density(z: jax.Array) -> jax.Array:
        return jnp.where(z[0] < border, jnp.sum(_log_normal(z)), jnp.nan)

    return Case(log_density, {"dim": 5}, float(np.log1p(-1e-4)))


def flat() -> Case:
    """No normaliser: constant along one of three directions."""
    return Case(lambda z: -0.5 * (z[0] - z[1]) ** 2 - 0.5 * z[2] ** 2, {"dim": 3}, None)


_BENCHMARKED: dict[str, Spec] = {
    name: Spec(partial(known, name), get_target(name).about, get_target(name).source)
    for name in ("ring", "gmm40", "funnel", "many-well", "brownian", "breast-cancer")
}
_TURNED: dict[str, Spec] = {
    f"{name}-rotated": Spec(
        partial(known, name, True), f"{get_target(name).about}, turned", get_target(name).source
    )
    for name in ("funnel", "many-well")
}


def _spec(about: str, build: Callable[..., Case], *args: object) -> Spec:
    return Spec(partial(build, *args), about)


SHAPES: dict[str, Spec] = {
    **_BENCHMARKED,
    **_TURNED,
    "funnel-20": _spec("Neal's funnel, 20-d", funnel, 20),
    "funnel-30": _spec("Neal's funnel, 30-d", funnel, 30),
    "banana": _spec("a banana, 2-d", banana, 2),
    "banana-10": _spec("a banana among eight Gaussians", banana, 10),
    "spike-slab-4": _spec("90 % in a spike of sd .01, in a slab", spike_and_slab, 4, 0.01, 0.9),
    "spike-slab-8": _spec("half in a spike of sd .1, in a slab", spike_and_slab, 8, 0.1, 0.5),
    "two-widths-2": _spec("two modes, sd 1 and .1, 2-d", two_widths, 2, 0.1, 8.0),
    "two-widths-8": _spec("two modes, sd 1 and .3, 8-d", two_widths, 8, 0.3, 12.0),
    "two-widths-20": _spec("two modes, sd 1 and .5, 20-d", two_widths, 20, 0.5, 16.0),
    "gmm40-50": _spec("forty modes in 50-d", scattered, 50, 40, 40.0),
    "students-50": _spec("ten Student-t products in 50-d", students, 50, 10, 10.0, 2.0),
    "cauchy-10": _spec("a product of Cauchys, 10-d", students, 10, 1, 0.0, 1.0),
    "scales-30": _spec("sds from .001 to 1000", gaussian, np.logspace(-3, 3, 30), False),
    "ill-conditioned-60": _spec(
        "sds from .03 to 30, turned, 60-d", gaussian, np.logspace(-1.5, 1.5, 60), True
    ),
    "wide": _spec("N(0, 10⁵² I)", wide),
    "nan-corner": _spec("NaN at 0.01 % of places", nan_corner),
    "improper-density": Spec(flat, "flat along one direction", "there is none"),
}
