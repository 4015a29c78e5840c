"""Quality of a sampler from independent batches of particles: it always runs sequentially, with the
parameters as they are. It refuses to train.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Particle, Scalar
from nestedvi.arguments import check_key, check_kind, check_whole
from nestedvi.densities.base import AbstractDensity, AbstractSampleable
from nestedvi.devices import Devices, as_mesh, check_divides, spread
from nestedvi.errors import NestedviWarning
from nestedvi.kernels.base import Context
from nestedvi.particles.resampling import Resampling
from nestedvi.particles.weights import log_Z_hat_stderr
from nestedvi.paths.annealing import Annealing
from nestedvi.paths.base import AbstractFixedSupportPath, AbstractPath
from nestedvi.paths.sequence import DensitySequence, StackedDensities
from nestedvi.precision import in_full_precision
from nestedvi.sampler.checks import check_run, support_warnings
from nestedvi.sampler.level import Level
from nestedvi.sampler.nested import NestedSampler, level_arrays
from nestedvi.sampler.run import LevelInfo, run

__all__ = ["Evaluation", "evaluate", "upper_bound"]

_PARTICLES_AT_ONCE = 200_000


class Evaluation(NamedTuple):
    """What independent batches say about a sampler.

    `log_Z` is the log of the mean of Ẑ over batches, `log_Z_stderr` its standard error.
    `lower_bound` is the mean of log Ẑ over batches (the paper's log Ẑ column), below log Z on
    average; `upper_bound` is above it on average, where the target can be sampled exactly and the
    kernels can be run backwards (None elsewhere). `ess` is of the final weights, in particles.

    Example:
        ```python
        sampler = nvi.build(
            jax.random.key(0),
            "ais",
            target=nvi.targets.ring(),
            initial=nvi.DiagonalNormal(jnp.zeros(2), 5.0),
            num_levels=4,
        ).sampler
        quality = nvi.evaluate(jax.random.key(1), sampler, num_batches=10)
        print(quality.log_Z, quality.log_Z_stderr, quality.level_ess)
        ```
    """

    log_Z: float
    log_Z_stderr: float
    lower_bound: float
    lower_bound_stderr: float
    upper_bound: float | None
    upper_bound_stderr: float | None
    ess: float
    ess_stderr: float
    ess_percent: float
    level_ess: Float[np.ndarray, " levels"]
    level_kl_reverse: Float[np.ndarray, " levels"]
    level_kl_forward: Float[np.ndarray, " levels"]
    num_particles: int
    num_batches: int


@eqx.filter_jit
def _batches(keys: Key, shared: tuple[NestedSampler], num_particles: int, at_once: int):
    (sampler,) = shared

    def one(key: Key) -> tuple[Scalar, LevelInfo]:
        result = run(key, sampler, num_particles)
        return result.log_Z_hat, result.info

    return jax.lax.map(one, keys, batch_size=at_once)


@in_full_precision
def evaluate(
    key: Key,
    sampler: NestedSampler,
    *,
    num_particles: int = 100,
    num_batches: int = 100,
    bounds: bool = True,
    devices: Devices = None,
) -> Evaluation:
    """Runs independent batches of particles: log Z with its standard error, bounds and ESS.

    Args:
        key: randomness of all batches.
        sampler: run as it is.
        num_particles: S, of each batch.
        num_batches: independent runs; standard errors come from them.
        bounds: False leaves the upper bound out.
        devices: a number or a list of devices, which share the batches, or a mesh with the axes
            `batches` and `particles`; the second lays every batch out over its devices.

    Example:
        ```python
        sampler = nvi.build(
            jax.random.key(0),
            "smc-random-walk",
            target=nvi.targets.ring(),
            initial=nvi.DiagonalNormal(jnp.zeros(2), 5.0),
            num_levels=4,
        ).sampler
        quality = nvi.evaluate(jax.random.key(1), sampler, num_particles=50, num_batches=10)
        print(f"{quality.log_Z:.2f} ± {quality.log_Z_stderr:.2f}")
        ```
    """
    check_key(key)
    check_kind("sampler", sampler, NestedSampler, "an nvi.NestedSampler, from nvi.fit say")
    num_particles = check_whole("num_particles", num_particles)
    num_batches = check_whole("num_batches", num_batches)
    key_lower, key_upper = jax.random.split(key)
    spread_batches = _spreader(num_particles, num_batches, devices)
    log_Z_hats, info = spread_batches(_batches, key_lower, sampler)
    check_run(info, num_particles)
    for sentence in support_warnings(sampler, info):
        warnings.warn(sentence, NestedviWarning, stacklevel=3)
    upper = _upper(key_upper, sampler, spread_batches) if bounds else None
    return _summarise(log_Z_hats, info, upper, num_particles)


def _spreader(num_particles: int, num_batches: int, devices: Devices) -> Callable[..., Any]:
    """A function that runs `num_batches` batches, as many side by side as memory suggests, and over
    the devices.
    """
    at_once = max(1, min(num_batches, _PARTICLES_AT_ONCE // num_particles))
    mesh = as_mesh(devices, "batches", ("particles",))
    check_divides(num_particles, "num_particles", mesh, "particles")

    def spread_batches(batches: Any, key: Key, *shared: Any) -> Any:
        keys = jax.random.split(key, num_batches)
        if mesh is None:
            return batches(keys, shared, num_particles, at_once)
        return spread(batches, mesh, "batches", keys, shared, num_particles, at_once)

    return spread_batches


def _summarise(
    log_Z_hats: Float[Array, " batches"],
    info: LevelInfo,
    upper: Float[Array, " batches"] | None,
    num_particles: int,
) -> Evaluation:
    """Means over batches, and their standard errors."""
    log_Z, stderr = log_Z_hat_stderr(log_Z_hats)

    def mean_of(x):
        return np.asarray(jnp.mean(x, axis=0))

    final_ess = info.ess[:, -1]
    return Evaluation(
        log_Z=float(log_Z),
        log_Z_stderr=float(stderr),
        lower_bound=float(jnp.mean(log_Z_hats)),
        lower_bound_stderr=_stderr(log_Z_hats),
        upper_bound=None if upper is None else float(jnp.mean(upper)),
        upper_bound_stderr=None if upper is None else _stderr(upper),
        ess=float(jnp.mean(final_ess)),
        ess_stderr=_stderr(final_ess),
        ess_percent=float(100 * jnp.mean(final_ess) / num_particles),
        level_ess=mean_of(info.ess),
        level_kl_reverse=mean_of(info.kl_reverse),
        level_kl_forward=mean_of(info.kl_forward),
        num_particles=num_particles,
        num_batches=log_Z_hats.shape[0],
    )


def _stderr(values: Float[Array, " batches"]) -> float:
    num = values.shape[0]
    return float(jnp.std(values, ddof=1) / np.sqrt(num)) if num > 1 else float("nan")


def _last_density(path: AbstractPath) -> AbstractDensity | None:
    """γ_K as a density of its own, where the path has one."""
    if isinstance(path, Annealing | StackedDensities):
        return path.target
    if isinstance(path, DensitySequence):
        return path.densities[-1]
    return None


def _upper(key: Key, sampler: NestedSampler, spread_batches: Callable[..., Any]):
    exact = _last_density(sampler.path)
    if not isinstance(exact, AbstractSampleable):
        return None
    try:
        return spread_batches(_upper_batches, key, sampler, exact)
    except NotImplementedError:
        return None


@eqx.filter_jit
def _upper_batches(keys, shared, num_particles, at_once):
    sampler, exact = shared
    return jax.lax.map(
        lambda key: upper_bound(key, sampler, exact, num_particles), keys, batch_size=at_once
    )


def upper_bound(
    key: Key, sampler: NestedSampler, exact: AbstractSampleable, num_particles: int
) -> Scalar:
    """One draw of log (1/S) Σ w with one particle drawn backwards from `exact` (γ_K) and S-1
    forwards: E[·] ≥ log Z.

    Resampling is switched off for it: the particles must be independent chains. The path's
    densities must live on one space, and every transition must have a reverse kernel that can be
    drawn from.
    """
    key_exact, key_back, key_forward = jax.random.split(key, 3)
    backwards = _log_w_backwards(key_back, sampler, exact, exact.sample(key_exact))
    if num_particles == 1:
        return backwards
    chains = NestedSampler(
        sampler.initial, sampler.path, sampler.transitions, Resampling(when="never")
    )
    log_w = run(key_forward, chains, num_particles - 1).particles.log_w
    return jax.nn.logsumexp(jnp.append(log_w, backwards)) - np.log(num_particles)


def _log_w_backwards(
    key: Key, sampler: NestedSampler, exact: AbstractSampleable, z: Particle
) -> Scalar:
    """log w of a chain z_K, z_{k-1} ~ r_{k-1}(· | z_k): γ_K(z_K) Π r_{k-1} / q_1(z_1) Π q_k."""
    path = sampler.path
    if not isinstance(path, AbstractFixedSupportPath):
        raise ValueError(
            "An upper bound runs the sampler backwards, which a path of growing support does not"
            " allow."
        )

    def back(carry, level: Level, key_level: Key):
        z, total = carry
        context = Context(level.theta, lambda z: path.log_density(level.theta, path.stats(z)))
        z_prev, aux = level.transition.reverse_move(key_level, z, context)
        scores = level.transition.score(z, z_prev, aux, context)
        return z_prev, total + scores.log_r - scores.log_q

    keys = jax.random.split(key, sampler.num_levels - 1)
    carry = z, exact.log_gamma(z)
    if sampler.homogeneous:
        arrays, rebuild = level_arrays(sampler)

        def body(carry, inputs):
            return (back(carry, rebuild(inputs[0]), inputs[1]), None)

        carry, _ = jax.lax.scan(body, carry, (arrays, keys), reverse=True)
    else:
        for k in range(sampler.num_levels, 1, -1):
            carry = back(carry, sampler.level(k), keys[k - 2])
    first, total = carry
    return total - (sampler.initial.log_gamma(first) - sampler.initial.log_Z)
