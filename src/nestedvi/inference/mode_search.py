"""Where the modes are: climbs from around the origin, from a pilot's particles and from far away,
and what they say about an answer. Climbing itself is `fitting.modes`'.
"""

import numpy as np
import scipy.special

from nestedvi.densities.affine import Pullback
from nestedvi.densities.gaussian import CorrelatedMixture
from nestedvi.fitting.draws import log_values
from nestedvi.fitting.modes import Modes, find_modes, survey
from nestedvi.inference.answer import Answer

__all__ = ["MOST_MODES", "NUM_STARTS", "missed_modes", "search_modes", "total_log_mass"]

# Climbs begin at this many places. Where they end at several modes there are more of them, for each
# mode at least the second number: one that is found half as often as the others is then missed
# once in 10⁵ times.
NUM_STARTS, _STARTS_A_MODE, MOST_MODES = 64, 25, 60
# A survey for what those miss: so many short climbs, so many values of the density (fewer where a
# draw is large), between which widths, and how many of the values are followed up in each of so
# many ranges of width. For its cost a value finds five times as many narrow modes as a climb.
_SURVEY, _VALUES, _SURVEY_WIDTHS = 512, 98_304, (0.5, 32.0)
_NUMBERS, _FOLLOWED, _RANGES = 10_000_000, 8, 16
# Widths of the places in units of the search: near ones, and far ones for what those are blind to.
_WIDTHS = (0.5, 2.0, 8.0)
# By how much Laplace's approximation of the modes' mass may exceed log Z: it is one.
_MISSED = 0.4


def search_modes(
    rng: np.random.Generator, target: Pullback, dim: int, particles: np.ndarray | None
) -> Modes:
    """Modes above places around the origin and above the pilot's particles, and those that a survey
    finds. Where there are several, climbs from places as wide apart as those known find more, until
    there were enough of them.
    """
    starts = rng.normal(size=(NUM_STARTS, dim)) * np.resize(_WIDTHS, NUM_STARTS)[:, None]
    if particles is not None:
        half = NUM_STARTS // 2
        starts[:half] = particles[rng.integers(len(particles), size=half)]
    modes = find_modes(target, starts, most=MOST_MODES)
    gradients, done = modes.gradients, 0
    if particles is not None and 0 < len(modes.z) < MOST_MODES:
        starts = _wide_draws(rng, _SURVEY, dim)
        modes = survey(target, starts, modes, most=MOST_MODES)
        gradients += modes.gradients
        if len(modes.z) < MOST_MODES:
            values = min(_VALUES, _NUMBERS // dim)
            starts = _unexplained(target, _wide_draws(rng, values, dim), modes)
            modes = find_modes(target, starts, most=MOST_MODES, known=modes)
            # A value costs a third of a gradient, or less.
            gradients += modes.gradients + values // 3
    while 1 < len(modes.z) < MOST_MODES and done < _STARTS_A_MODE * len(modes.z):
        centre, spread = modes.z.mean(axis=0), 1.2 * modes.z.std(axis=0) + 1.0
        starts = centre + spread * rng.normal(size=(NUM_STARTS, dim))
        modes = find_modes(target, starts, most=MOST_MODES, known=modes)
        gradients, done = gradients + modes.gradients, done + NUM_STARTS
    return modes._replace(gradients=gradients)


def _wide_draws(rng: np.random.Generator, num: int, dim: int) -> np.ndarray:
    """Draws of many widths, narrow ones first."""
    low, high = np.log(_SURVEY_WIDTHS)
    widths = np.exp(np.sort(rng.uniform(float(low), float(high), size=(num, 1)), axis=0))
    return widths * rng.normal(size=(num, dim))


def _unexplained(target: Pullback, z: np.ndarray, modes: Modes) -> np.ndarray:
    """The draws at which the density is furthest above the Gaussians at the modes, some of every
    width: a narrow mode far away shows in values where few climbs begin.
    """
    shapes = CorrelatedMixture(modes.z, modes.roots, modes.log_mass)
    values = log_values(target, z) - shapes.log_prob_many(z)
    values = np.where(np.isfinite(values), values, -np.inf)
    ranges = np.array_split(np.arange(len(z)), _RANGES)
    return z[np.concatenate([rows[np.argsort(-values[rows])[:_FOLLOWED]] for rows in ranges])]


def total_log_mass(modes: Modes) -> float:
    """Laplace's approximation of the log mass of all modes that it can be told of."""
    log_mass = modes.log_mass[modes.curved]
    return float(scipy.special.logsumexp(log_mass)) if len(log_mass) else -np.inf


def missed_modes(log_mass: float, answer: Answer) -> tuple[str, ...]:
    """A mode that climbs found and particles did not has more mass than all that they report."""
    gap = log_mass - answer.log_Z
    if gap <= max(_MISSED, 6 * answer.log_Z_stderr):
        return ()
    return (
        f"Modes that optimisation found have, by Laplace's approximation, e^{gap:.1f} times the"
        " mass that the particles account for: they miss a narrow mode, and log Z is too low.",
    )
