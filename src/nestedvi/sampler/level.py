"""One level: particles for γ_{k-1} go in, particles for γ_k come out.

    z_k ~ q_k(· | z_{k-1})
    v_k = γ_k(z_k) r_{k-1}(z_{k-1} | z_k) / γ_{k-1}(z_{k-1}) q_k(z_k | z_{k-1})
    w_k = v_k w_{k-1}

`terms` computes every factor of v_k for S particles; the first level is the same function with
nothing coming in. Which factor carries which gradient is decided here, by `GradientRule`, and
nowhere else; how the factors combine into the gradient of a divergence is `divergences`' business.
"""

from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import PyTree

from nestedvi._types import Key, LogWeights
from nestedvi.devices import over_particles
from nestedvi.kernels.base import AbstractTransition, Context
from nestedvi.particles.resampling import Particles, Resampling
from nestedvi.paths.base import AbstractFixedSupportPath, AbstractPath

__all__ = [
    "EVERY_GRADIENT",
    "GradientRule",
    "Level",
    "Terms",
    "hold",
    "nothing_in",
    "outgoing",
    "terms",
    "weigh",
]

T = TypeVar("T")


class Level(NamedTuple):
    """What belongs to level k: the transition into it, θ_{k-1}, θ_k, and the resampling that comes
    before the move.
    """

    transition: AbstractTransition
    theta_prev: PyTree
    theta: PyTree
    resampling: Resampling


class GradientRule(NamedTuple):
    """Which gradients flow within a level.

    `hold_q`: sticking the landing, log q_k is evaluated with its parameters held constant.
    `score_only`: no pathwise gradient; log q̃_k is all of log q_k. A flow has no q_k to score and
    stays pathwise. `hold_theta`: γ_k r_{k-1}, the target of level k, is constant (partial
    optimisation); θ_{k-1} still learns. `split`: also evaluate log v_k with every parameter held,
    for divergences whose pathwise and direct coefficients differ.
    """

    hold_q: bool = False
    score_only: bool = False
    hold_theta: bool = False
    split: bool = False


EVERY_GRADIENT = GradientRule()
"""Every gradient flows as written; what evaluation uses, where none is taken."""


class Terms(NamedTuple):
    """The factors of v_k for every particle (leading axis S), each carrying the gradients that its
    name says.

    `log_gamma_prev`: θ_{k-1}.  `log_gamma`: θ_k and z_k.  `log_gamma_at`: θ_k only, for the
    normaliser Z_k. `log_q`: z_k, and φ̂ unless held.  `log_r`: φ̌ and z_k.  `log_q_score`: φ̂ of
    what was not reparameterised. `log_v_pathwise`: z_k only (None unless asked for).
    """

    z: PyTree
    stats: PyTree
    log_gamma_prev: LogWeights
    log_gamma: LogWeights
    log_gamma_at: LogWeights
    log_q: LogWeights
    log_r: LogWeights
    log_q_score: LogWeights
    log_v_pathwise: LogWeights | None

    @property
    def log_v(self) -> LogWeights:
        """log v_k. A particle that γ_{k-1} excludes (−inf) has weight zero already; it stays
        excluded instead of NaN.
        """
        excluded = jnp.isneginf(self.log_gamma_prev)
        prev = jnp.where(excluded, 0.0, self.log_gamma_prev)
        return jnp.where(excluded, -jnp.inf, self.log_gamma + self.log_r - prev - self.log_q)


def nothing_in(num_particles: int, dtype: Any = None) -> Particles:
    """What enters the first level: S empty particles of weight one."""
    return Particles(None, None, over_particles(jnp.zeros(num_particles, dtype)))


def _context(path: AbstractPath, theta: PyTree) -> Context:
    if isinstance(path, AbstractFixedSupportPath):
        fixed = path
        return Context(theta, lambda z: fixed.log_density(theta, fixed.stats(z)))
    return Context(theta, None)


def _score(transition, path, theta, z, z_prev, aux):
    context = _context(path, theta)
    return jax.vmap(lambda z, z_prev, aux: transition.score(z, z_prev, aux, context))(
        z, z_prev, aux
    )


def _log_gamma(path, theta, stats, stats_prev):
    return jax.vmap(lambda s, s_prev: path.log_gamma(theta, s, s_prev))(stats, stats_prev)


def particle_keys(key: Key, num: int) -> Key:
    """One key a particle. A level's key is used for nothing else, so that consecutive keys starting
    from it are as good as split ones; they save one of the two generator calls of a level, which
    are most of its run time when particles are few."""
    if (
        not jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        or str(jax.random.key_impl(key)) != "threefry2x32"
    ):
        return jax.random.split(key, num)
    high, low = jax.random.key_data(key)
    low = low + jnp.arange(num, dtype=low.dtype)
    return jax.random.wrap_key_data(
        jnp.stack([jnp.broadcast_to(high, low.shape), low], axis=-1), impl="threefry2x32"
    )


def hold(tree: T) -> T:
    """The same density, kernel or any other tree with its parameters held: the level that it stands
    in gives them no gradient.

    Args:
        tree: a density, a kernel, or any other pytree.

    Example:
        ```python
        held = nvi.hold(nvi.DiagonalNormal(jnp.zeros(1), 1.0))
        jax.grad(lambda m: nvi.hold(m).log_gamma(jnp.ones(1)))(held).loc  # zero
        ```
    """
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(stop_gradient(arrays), rest)


def _by_score(rule: GradientRule, transition: AbstractTransition) -> bool:
    """Whether every draw learns by the score function. A deterministic move has none: holding its
    z_k would zero its gradient.
    """
    return rule.score_only and transition.holdable


def terms(
    key: Key,
    incoming: Particles,
    level: Level,
    path: AbstractPath,
    rule: GradientRule = EVERY_GRADIENT,
) -> Terms:
    """Moves every particle and evaluates the factors of its increment."""
    transition, theta = level.transition, level.theta
    # Partial optimisation holds θ_k in its role as target, also where a kernel reads it.
    context = _context(hold(path), hold(theta)) if rule.hold_theta else _context(path, theta)
    keys = over_particles(particle_keys(key, incoming.log_w.shape[0]))
    z, aux = jax.vmap(lambda key, z_prev: transition.move(key, z_prev, context))(keys, incoming.z)
    if _by_score(rule, transition) or not (transition.reparameterised or transition.holdable):
        # Score function for every draw (appendix, second gradient for φ̂), or a move whose draws
        # never carry gradients.
        z, aux = stop_gradient((z, aux))
    return weigh(z, aux, incoming, level, path, rule)


def weigh(
    z: PyTree,
    aux: PyTree,
    incoming: Particles,
    level: Level,
    path: AbstractPath,
    rule: GradientRule = EVERY_GRADIENT,
) -> Terms:
    """The factors of the increment for given moves: everything in a level that is not random."""
    transition, theta_prev, theta, _ = level
    if theta_prev is None:
        log_gamma_prev = jnp.zeros_like(incoming.log_w)
    else:
        log_gamma_prev = jax.vmap(lambda s: path.log_gamma_prev(theta_prev, s))(incoming.stats)
    pathwise = None
    if rule.split:
        fixed, fixed_path, fixed_theta = hold(transition), hold(path), hold(theta)
        through_z = _score(fixed, fixed_path, fixed_theta, z, incoming.z, aux)
        log_gamma_z = _log_gamma(
            fixed_path, fixed_theta, jax.vmap(fixed_path.stats)(z), incoming.stats
        )
        pathwise = log_gamma_z + through_z.log_r - through_z.log_q - stop_gradient(log_gamma_prev)
        # What is left is the direct dependence on the parameters, at fixed z_k.
        z, aux = stop_gradient((z, aux))
    if rule.hold_theta:
        path, theta = hold(path), hold(theta)
    stats = jax.vmap(path.stats)(z)
    scores = _score(transition, path, theta, z, incoming.z, aux)
    log_q, log_r = scores.log_q, scores.log_r
    if (rule.hold_q or rule.hold_theta) and transition.holdable:
        held = _score(hold(transition), hold(path), hold(theta), z, incoming.z, aux)
        # Sticking the landing: E[∂log q_k/∂φ̂] = 0, so only the way through z_k is kept.
        log_q = held.log_q if rule.hold_q else log_q
        # Partial optimisation holds r_{k-1}, also where it shares parameters with q_k.
        log_r = held.log_r if rule.hold_theta else log_r
    return Terms(
        z=z,
        stats=stats,
        log_gamma_prev=log_gamma_prev,
        log_gamma=_log_gamma(path, theta, stats, incoming.stats),
        # ∂log Z_k/∂θ_k = E_{π_k}[∂log γ_k/∂θ_k]: the particles are constants in it.
        log_gamma_at=_log_gamma(path, theta, stop_gradient(stats), incoming.stats),
        log_q=log_q,
        log_r=log_r,
        log_q_score=log_q if _by_score(rule, transition) else scores.log_q_score,
        log_v_pathwise=pathwise,
    )


def outgoing(incoming: Particles, level_terms: Terms) -> Particles:
    """The particles that leave the level, w_k = v_k w_{k-1}; zero weight stays zero whatever v_k
    is.
    """
    log_v = level_terms.log_v
    dead = jnp.isneginf(incoming.log_w)
    log_w = jnp.where(dead, -jnp.inf, jnp.where(dead, 0.0, incoming.log_w) + log_v)
    return over_particles(Particles(level_terms.z, level_terms.stats, log_w))
