"""The quick way of `auto`: importance sampling from a base at the modes, where that is good enough.

Modes come from optimisations, a pilot's particles say whether mass was missed, and the base is
fitted to its own weighted draws. What is accepted is judged by the share of draws that importance
sampling keeps, by k̂, and by the pilot. Anything else is left to the flexible way.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from nestedvi._types import Key
from nestedvi.densities.affine import Pullback
from nestedvi.densities.mixtures import ScaleMixture, StudentMixture
from nestedvi.fitting.importance import (
    SHORT,
    Base,
    Trial,
    base_at_modes,
    draw_many_weighted,
    fit_base,
    products_at_modes,
    refit,
    weigh,
)
from nestedvi.fitting.modes import MOST_MODES, NUM_STARTS, find_modes, search_modes
from nestedvi.fitting.richer import (
    defended,
    richer_base,
    uncovered,
    with_component,
    with_particles,
)
from nestedvi.fitting.variational import Gaussian, fit_variational
from nestedvi.inference.answer import Answer, Cost, Trace, weight_curve
from nestedvi.particles.weights import (
    beyond_largest,
    ess,
    khat,
    library_of,
    log_Z_hat,
    normalise,
    num_families,
    systematic,
)
from nestedvi.randomness import generator, split_on_host
from nestedvi.smc.tempering import Tempering

__all__ = ["QuickBase", "answer_by_importance", "quick_base"]

# Importance sampling must keep this share of its draws, with a k̂ below the second number and no
# more than the third of the mass where the base has far less than its due.
_SHARE, _KHAT, _SHORT_MASS = 0.1, 0.5, 0.012
# Where at most the first of the pilot's particles hardly move, one step suits all: the density has
# no neck that draws could miss, and these are the share, the k̂ and the mass. What is short there is
# the price of many dimensions.
_EVEN, _EVEN_SHARE, _EVEN_KHAT, _EVEN_SHORT_MASS = 0.006, 0.05, 0.6, 0.25
# Fitting goes on up to this share.
_GOOD = 0.6
# This share of the pilot's particles, above what the trial expects, may be where the base has far
# less than its due.
_UNCOVERED = 0.01
# A mode with this share of the mass, by Laplace's approximation, must be covered.
_MATTERS = 0.01
_REPAIRS = 4
# Of a mixture that keeps this share, one of more components is tried: so many, or twice as many.
_LEAST, _RICHER = 0.01, 4
# Degrees of freedom of coordinates with tails of their own.
_FREEDOMS = (1, 2, 4)
_BATCHES = 10
# Fresh draws must keep this share of what the trial kept, with a k̂ below the second number; the
# base is tried so many times.
_KEPT, _KHAT_ALL, _TRIES = 0.5, 0.7, 2
# From this k̂ on some of the draws have tails in each coordinate.
_TAIL = 0.3
# As many draws as bring the standard error of log Z down to this, in no more than so many calls and
# draws a batch.
_STDERR, _MOST_CALLS, _MOST_DRAWS = 0.003, 8, 65_536


class QuickBase(NamedTuple):
    """A base with the trial that judged it, whether that is good enough, what was spent, Laplace's
    approximation of the log mass of all modes, the share of the pilot's particles that speaks of
    mass which draws do not reach, and a Gaussian from gradients and Hessians where it was fitted;
    `trial` is None where no mode was found.
    """

    trial: Trial | None
    accepted: bool
    gradients: int
    values: int
    log_mass: float = -np.inf
    unreached: float = 0.0
    gaussian: Gaussian | None = None


def num_draws(dim: int) -> int:
    """In one call: more where a covariance needs them, fewer where a draw is large."""
    if dim > 200:
        return 4096
    return 8192 if dim <= 32 else 16_384


class _Search:
    """Modes, bases at them, and what was spent; `pilot` is a rough run, where there was one."""

    def __init__(self, key: Key, target: Pullback, dim: int, pilot: Tempering | None):
        self.rng, self.target, self.dim, self.pilot = generator(key), target, dim, pilot
        self.particles = None if pilot is None else np.asarray(pilot.z, np.float64)
        self.modes = search_modes(self.rng, target, dim, self.particles)
        self.gradients, self.values = self.modes.gradients, 0
        self.gaussian: Gaussian | None = None

    def mixture(self, keys: Sequence[Key]) -> Trial:
        """A mixture at the modes. Particles of the pilot that it does not cover lead to modes that
        were missed, or to components of their own.
        """
        dtype, particles = jnp.result_type(float), self.particles
        base = base_at_modes(self.modes, dtype)
        if particles is not None:
            base = with_particles(base, self.modes, self.target, particles)
        for k in keys:
            trial = self.fit(k, base)
            if self.pilot is not None and not _is_even(self.pilot) and trial.share < _LEAST:
                # A neck or a long tail: no mixture will do, whatever it still misses.
                break
            missed = self.missed(trial)
            if particles is None or len(missed) <= _UNCOVERED * len(particles):
                break
            if trial.khat < _KHAT and not _too_many(missed, particles, trial):
                break
            starts = missed[self.rng.integers(len(missed), size=NUM_STARTS)]
            more = find_modes(self.target, starts, known=self.modes, most=MOST_MODES)
            self.gradients += more.gradients
            if len(more.z) > len(self.modes.z):
                self.modes = more
                base = base_at_modes(more, dtype)
            elif len(missed) > 2 * self.dim:
                assert isinstance(trial.base, StudentMixture)
                base = with_component(trial.base, missed, len(missed) / len(particles))
            else:
                break
        return trial

    def products(self, keys: Sequence[Key]) -> Iterator[Trial]:
        """Independent coordinates with tails of several weights, at the modes."""
        for k, freedom in zip(keys, _FREEDOMS, strict=False):
            base = products_at_modes(self.modes, freedom, jnp.result_type(float))
            yield self.fit(k, base, least=_LEAST)

    def richer(self, keys: Sequence[Key], trial: Trial) -> Iterator[Trial]:
        """More components than modes, where there is no neck that their draws could miss."""
        if _is_even(self.pilot) and isinstance(trial.base, StudentMixture) and trial.share > _LEAST:
            components = max(_RICHER, 2 * len(trial.base.means))
            num = num_draws(self.dim)
            base = richer_base(keys[0], trial.base, self.target, num=num, components=components)
            self.values += num
            yield self.fit(keys[1], base)

    def variational(self, keys: Sequence[Key]) -> Iterator[Trial]:
        """In many dimensions, where no pilot ran, a Gaussian that does not come from a mode."""
        if self.pilot is None:
            starts = np.stack([np.zeros(self.dim), self.modes.z[0]])
            self.gaussian = found = fit_variational(keys[0], self.target, starts)
            if found is not None:
                self.gradients += found.gradients
                yield self.fit(keys[1], found.as_mixture(jnp.result_type(float)))

    def fit(self, key: Key, base: Base, least: float = 0.0) -> Trial:
        num = num_draws(self.dim)
        trial = fit_base(key, base, self.target, num=num, good=_GOOD, least=least)
        self.values += trial.draws
        return trial

    def missed(self, trial: Trial) -> np.ndarray:
        """The pilot's particles where the base has far less than its due."""
        if self.particles is None:
            return np.empty((0, self.dim))
        return uncovered(trial.base, self.target, self.particles, trial.log_Z_hat + SHORT)

    def misses_a_mode(self, trial: Trial) -> bool:
        """Whether the base has far less than its due at the top of a mode that has mass."""
        modes = self.modes
        matter = modes.curved & (modes.log_mass > modes.total_log_mass + np.log(_MATTERS))
        tops = modes.z[matter]
        return bool(len(uncovered(trial.base, self.target, tops, trial.log_Z_hat + SHORT)))

    def accepts(self, trial: Trial) -> bool:
        """Whether the draws' weights and the pilot have nothing against it."""
        is_even = _is_even(self.pilot)
        share, short = (_EVEN_SHARE, _EVEN_SHORT_MASS) if is_even else (_SHARE, _SHORT_MASS)
        # A trial's k̂ is known to a tenth. Of a base that keeps most of its draws fresh ones decide.
        khat_limit = _EVEN_KHAT if is_even or trial.share > _GOOD else _KHAT
        good = trial.share > share and trial.khat < khat_limit and trial.short < short
        if not good or self.misses_a_mode(trial):
            return False
        if self.pilot is None or self.particles is None:
            return True
        missed = self.missed(trial)
        # A pilot's log Z is rough; its particles are all where the base is.
        if not len(missed) and trial.share > _GOOD:
            return True
        agrees = _agrees(trial, self.pilot, self.target)
        return agrees and not _too_many(missed, self.particles, trial)


def quick_base(key: Key, target: Pullback, dim: int, pilot: Tempering | None) -> QuickBase:
    """A base from modes; `target` is in coordinates where the search began with a width of about
    one.
    """
    key_starts, *keys = split_on_host(key, _REPAIRS + 2 + len(_FREEDOMS) + 2)
    *keys, key_richer, key_fit = keys
    at = _Search(key_starts, target, dim, pilot)
    # With as many modes as are kept there are more: no mixture of them will do.
    if not at.modes.is_complete:
        return QuickBase(None, False, at.gradients, 0)
    trial = at.mixture(keys[len(_FREEDOMS) :])
    accepted = at.accepts(trial)
    last = (key_richer, key_fit)
    others = chain(at.variational(last), at.products(keys), at.richer(last, trial))
    for other in () if accepted else others:
        if accepted := at.accepts(other):
            trial = other
            break
    unreached = 0.0
    if accepted and at.particles is not None:
        unreached = _excess(len(at.missed(trial)), at.particles, trial)
    spent = (at.gradients, at.values)
    return QuickBase(trial, accepted, *spent, at.modes.total_log_mass, unreached, at.gaussian)


def _is_even(pilot: Tempering | None) -> bool:
    """Whether one step suits all of the pilot's particles."""
    return pilot is not None and pilot.stuck <= _EVEN


def _too_many(missed: np.ndarray, particles: np.ndarray, trial: Trial) -> bool:
    """Whether more particles are uncovered than chance allows: three standard errors above what the
    trial's own weights say.
    """
    return _excess(len(missed), particles, trial, errors=3) > _UNCOVERED


def _excess(num: int, particles: np.ndarray, trial: Trial, errors: float = 1) -> float:
    """What share of the particles, of `num` that are uncovered, neither the trial's own weights nor
    so many standard errors explain: no draw's weight shows such mass.
    """
    expected = len(particles) * trial.short
    return max(0.0, num - expected - errors * expected**0.5) / len(particles)


def _agrees(trial: Trial, pilot: Tempering, target: Pullback) -> bool:
    """Whether the pilot's rough log Z is not above the trial's. One below it is no objection: the
    pilot missed what draws at the modes have shown.
    """
    # What the pilot's single precision makes of log γ is not held against it.
    log_ratio = weigh(ScaleMixture(pilot.z.shape[1]), target, pilot.z.astype(np.float64))
    log_Z = pilot.log_Z_hat + float(log_Z_hat(log_ratio - pilot.log_ratios[-1]))
    error = max(0.2, float(np.sqrt(pilot.log_Z_variance)))
    return log_Z - trial.log_Z_hat < 6 * error


class _Drawn(NamedTuple):
    """Fresh draws of ten batches: particles picked from each by weight, the draw that each is, all
    log weights, the batches' log Ẑ, and some draws of each batch with their weights for a fit.
    """

    particles: np.ndarray
    origin: np.ndarray
    log_w: np.ndarray
    log_Z_hats: np.ndarray
    some: list[tuple[Array | np.ndarray, np.ndarray]]


def _draw_batches(
    key: Key, trial: Trial, target: Pullback, per_batch: int, mesh: Mesh | None
) -> _Drawn:
    num = num_draws(trial.base.means.shape[1])
    base = defended(trial.base, heavy=trial.khat >= _TAIL)
    wanted = (1 / trial.share - 1) / _STDERR**2
    most = min(_MOST_CALLS, _MOST_DRAWS // num)
    calls = int(np.clip(np.ceil(wanted / (num * _BATCHES)), 1, most))
    particles, log_Z, weights, origin, some = [], [], [], [], []
    for b, k in enumerate(split_on_host(key, _BATCHES)):
        key_picks, *keys = split_on_host(k, calls + 1)
        drawn = [draw_many_weighted(one, base, target, num, mesh) for one in keys]
        log_ratio = np.concatenate([w for _, w in drawn])
        picks = systematic(generator(key_picks).uniform(), normalise(log_ratio), per_batch)
        draws = [z for z, _ in drawn]
        particles.append(np.asarray(library_of(draws[0]).concatenate(draws)[picks]))
        log_Z.append(log_Z_hat(log_ratio))
        weights.append(log_ratio)
        origin.append(b * len(log_ratio) + picks)
        some.append(drawn[0])
    z, origins, log_w = (np.concatenate(x) for x in (particles, origin, weights))
    return _Drawn(z, origins, log_w, np.array(log_Z), some)


def answer_by_importance(
    key: Key, quick: QuickBase, target: Pullback, num_particles: int, mesh: Mesh | None = None
) -> Answer | None:
    """`num_particles` of ten batches of fresh draws, thinned systematically by their weights. If
    these weights do not keep what the trial promised, the base is fitted to them and tried once
    more; then None. The devices of a mesh share the draws.
    """
    trial, values = quick.trial, quick.values
    assert trial is not None
    per_batch = -(-num_particles // _BATCHES)
    for k in split_on_host(key, _TRIES):
        drawn = _draw_batches(k, trial, target, per_batch, mesh)
        log_w = drawn.log_w
        values += len(log_w)
        share = float(ess(log_w)) / len(log_w)
        if share >= _KEPT * trial.share and khat(log_w) <= _KHAT_ALL:
            break
        z, some_log_w = (np.concatenate(x) for x in zip(*drawn.some, strict=True))
        base = refit(trial.base, z.astype(np.float64), some_log_w)
        trial = trial._replace(base=base, share=max(share, _EVEN_SHARE), khat=khat(log_w))
    else:
        return None
    # Draws are independent: their weights say the error better than ten batches do.
    of_weights = np.sqrt((1 / share - 1) / len(log_w))
    stderr = np.linalg.norm([of_weights, beyond_largest(log_w), quick.unreached])
    ancestors = num_families(drawn.origin, _BATCHES)
    return Answer(
        np.asarray(target.map(jnp.asarray(drawn.particles[:num_particles]))),
        np.repeat(drawn.log_Z_hats, per_batch)[:num_particles],
        float(log_Z_hat(log_w)),
        float(stderr),
        num_batches=_BATCHES,
        num_ancestors=int(ancestors.sum()),
        cost=Cost(quick.gradients / num_particles, 0.0, values / num_particles),
        drawn_log_w=log_w,
        exact=True,
        trace=Trace(drawn.log_Z_hats, ancestors, (), weight_curve(log_w)),
        family=drawn.origin[:num_particles],
    )
