"""The thorough way of `auto`: a flexible base learned in rounds, then a frozen annealed sampler.

Every round fits a base to the last runs' particles by forward KL and runs from it. Rounds end when
importance sampling from the base keeps most of its draws. In many dimensions particles cannot feed
a flexible family: there the base is a mixture at the modes with the particles' means and scatters.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestedvi._types import Key
from nestedvi.densities.affine import Pullback
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.mixtures import Mixture
from nestedvi.fitting.base import refit_base
from nestedvi.inference.answer import (
    Answer,
    Cost,
    Request,
    first_order,
    missed_modes,
    unfinished,
)
from nestedvi.inference.frozen import GOOD_BASE, as_sampler, freeze
from nestedvi.inference.plain import PlainBases, held_out
from nestedvi.inference.quick import QuickBase
from nestedvi.inference.tempered_smc import answer_from_followed
from nestedvi.particles.weights import khat, normalise
from nestedvi.progress import Stages
from nestedvi.randomness import split_on_host
from nestedvi.smc.tempering import Plan, Tempering, Tuned, follow, tempering

__all__ = ["Start", "answer_by_rounds"]

_BATCHES, _LEVELS = 10, 25
# Draws from a base cost one value of the density where a move costs eleven gradients, so there are
# many for each particle.
_DRAWS = 16
_FIRST = Plan(ess_share=0.6, moves=3, extra=3, extra_moves=2, draws=_DRAWS)
_ROUND = Plan(ess_share=0.6, moves=2, extra=3, draws=_DRAWS, picks=2)
# The share of the base's draws that look beyond its particles, round by round: first to find mass,
# then to be safe.
_WIDE = (0.3, 0.3, 0.3, 0.2, 0.15)
# A flexible base has parameters for every pair of coordinates: beyond this dimension particles
# cannot feed it. Then so many rounds of a plain one.
_FLEXIBLE_DIM, _PLAIN_ROUNDS = 64, 3
# A base goes on from the one before where importance sampling from that keeps this share.
_SOUND = 0.3
# Weights of fresh draws with a larger k̂ are not used alone.
_KHAT = 0.7
# With this share of the particles beyond all draws from the base its bulk is elsewhere.
_MOST = 0.5


class Start(NamedTuple):
    """What the search and the quick way leave: the target in its coordinates, a rough base, the
    pilot run where there was one, and what the modes cost.
    """

    target: Pullback
    base: AbstractSampleable
    pilot: Tempering | None
    quick: QuickBase


class _Spent(NamedTuple):
    """Gradients and values of the target so far, for each particle that is returned."""

    gradients: float
    values: float

    def add(self, run: Tempering, share: float = 1.0) -> "_Spent":
        """With a run of `share` as many particles as are returned."""
        return _Spent(self.gradients + share * run.gradients, self.values + share * run.values)


class _Learned(NamedTuple):
    """A base, an adaptive run from it, and what was asked of the target so far."""

    base: AbstractSampleable
    run: Tempering
    spent: _Spent


def answer_by_rounds(key: Key, request: Request, start: Start, stages: Stages) -> Answer:
    """`num_particles` from ten batches of a sampler with a learned base and `num_levels` − 1
    Hamiltonian moves.
    """
    *keys, key_fresh, key_steps = split_on_host(key, 2 * len(_WIDE) + 3)
    base, run, spent = _learn(keys, request, start, stages)
    # No fewer than the adaptive run took: in many dimensions that may be some hundred.
    levels = request.num_levels or max(_LEVELS, run.num_levels)
    fresh = partial(_fresh, request=request, start=start, base=base, stages=stages)
    tuned = freeze(run, levels)
    frozen = fresh("frozen run", key_fresh, tuned)
    sampling, values = frozen.gradients, spent.values + frozen.values
    if tuned.betas[0] == 1 and khat(frozen.drawn_log_w) > _KHAT:
        # There is mass that the base draws too seldom: temperatures bring particles there.
        tuned = freeze(run, levels, in_steps=True)
        frozen = fresh("frozen run in steps", key_steps, tuned)
        sampling, values = sampling + frozen.gradients, values + frozen.values
    answer = answer_from_followed(frozen, start.target, request.num_particles)
    gap = _disagreement(run.log_Z_hat, answer.log_Z, answer.log_Z_stderr)
    return answer._replace(
        log_Z_stderr=float(np.hypot(answer.log_Z_stderr, _beyond_draws(frozen))),
        diagnosis=(
            *unfinished(run),
            *gap,
            *missed_modes(start.quick.log_mass, answer),
            *first_order(frozen),
        ),
        sampler=as_sampler(base, start.target, tuned),
        cost=Cost(spent.gradients, sampling, values),
    )


def _fresh(
    name: str,
    key: Key,
    tuned: Tuned,
    *,
    request: Request,
    start: Start,
    base: AbstractSampleable,
    stages: Stages,
) -> Tempering:
    """A stage of fresh particles that adapt nothing."""
    stages.begin(name)
    total = -(-request.num_particles // _BATCHES) * _BATCHES
    run = partial(follow, key, base, start.target, tuned, num_particles=total, batches=_BATCHES)
    run = partial(run, draws=_DRAWS, piece=request.piece, mesh=request.mesh)
    frozen = request.keep(name, run)
    stages.done(log_Z=frozen.log_Z_hat)
    return frozen


def _learn(keys: Sequence[Key], request: Request, start: Start, stages: Stages) -> _Learned:
    """Rounds of a base that is fitted to particles, and of particles from that base."""
    num, target, base = request.num_particles, start.target, start.base
    spent = _Spent(start.quick.gradients / num, start.quick.values / num)
    if start.pilot is not None:
        spent = spent.add(start.pilot, start.pilot.z.shape[0] / num)
    is_plain, plain = request.dim > _FLEXIBLE_DIM, PlainBases(start.quick)
    shares: dict[str, Any] = {
        "num_particles": num,
        "piece": request.piece,
        "mesh": request.mesh,
        "move": plain.move(request.dim),
    }
    stages.begin("tempering")
    first = partial(tempering, keys[0], base, target, _FIRST, **shares)
    run = request.keep("tempering", first)
    spent = spent.add(run)
    stages.done(log_Z=run.log_Z_hat)
    data = [_rows(run)]
    for r, wide in enumerate(_WIDE[:_PLAIN_ROUNDS] if is_plain else _WIDE):
        stages.begin(f"fit {r + 1}")
        # A base of particles that are rough is no place to go on from.
        goes_on = r > 1 and run.base_share > _SOUND
        before = base if goes_on and isinstance(base, Mixture) else None
        fit: Callable[[], AbstractSampleable | None]
        fit = partial(_refit, keys[2 * r + 1], data, wide, before)
        if is_plain:
            origins = len(np.unique(run.origin))
            fit = partial(plain.better, keys[2 * r + 1], base, data, origins)
        fitted = request.keep(f"fit {r + 1}", fit)
        if fitted is None:
            break
        base = fitted
        stages.begin(f"run {r + 1}")
        again = partial(tempering, keys[2 * r + 2], base, target, _ROUND, **shares)
        run = request.keep(f"run {r + 1}", partial(again, step_size=run.step_size))
        spent = spent.add(run)
        stages.done(log_Z=run.log_Z_hat)
        data = [*data[-1:], _rows(run)] if r > 0 else [_rows(run)]
        if r > 0 and run.base_share > GOOD_BASE:
            break
    return _Learned(base, run, spent)


def _rows(run: Tempering) -> Float[np.ndarray, "moves particles dim"]:
    """Particles to fit a base to: those of a run after each of its last moves, and picks from its
    draws. Always as many, so that what is compiled for one fit serves the next.
    """
    return np.concatenate([run.picked, run.history])[-_ROUND.extra - 1 :]


def _refit(
    key: Key,
    data: list[Float[np.ndarray, "moves particles dim"]],
    wide: float,
    before: Mixture | None,
) -> Mixture:
    """A base from the particles of the last runs; of several runs every so many moves, so that the
    numbers stay the same.
    """
    z = np.concatenate([history[i :: len(data)] for i, history in enumerate(data)])
    held = held_out(z.shape[1])

    def rows(pick):
        return jnp.asarray(z[:, np.flatnonzero(pick)].reshape(-1, z.shape[2]))

    return refit_base(key, rows(~held), rows(held), wide=wide, before=before)


def _beyond_draws(run: Tempering) -> float:
    """The share of the particles that ended where the base has less of its due than at any of its
    draws. Moves got there and draws did not, so that this mass is in the particles and hardly in
    log Ẑ, and no weight shows it.

    In many dimensions that is most of them: no draw from a base is like any particle of the target,
    and the temperatures between them are what joins the two. Then it is the sum of the shares that
    moves at each temperature brought to where neither draws nor particles of any before had been.
    """
    most = float(np.max(run.drawn_log_w) / run.betas[0])
    weight = normalise(run.log_w.reshape(-1))
    beyond = float(weight @ (run.log_ratios[-1] > most))
    if beyond < _MOST:
        return beyond
    *before, last = run.log_ratios[1:]
    newly = 0.0
    for log_ratio in before:
        newly += float(np.mean(log_ratio > most))
        most = max(most, float(log_ratio.max()))
    return newly + float(weight @ (last > most))


def _disagreement(before: float, log_Z: float, stderr: float) -> tuple[str, ...]:
    """Mass that some runs reach and others miss shows in estimates that differ by more than their
    error.
    """
    gap = abs(before - log_Z)
    if gap <= max(6 * stderr, 0.1):
        return ()
    return (
        f"Two runs of the same sampler differ by {gap:.2f} in log Z, much more than the standard"
        f" error {stderr:.2f}: some of the mass is found only now and then. Use more particles.",
    )
