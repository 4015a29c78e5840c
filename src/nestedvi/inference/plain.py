"""Bases for so many dimensions that particles cannot feed a flexible family: a mixture at the modes
with particles' means and covariances, or a Gaussian from gradients and Hessians that particles have
mended. Particles that were held out say which, and whether it is worth another run.
"""

from functools import partial

import numpy as np
from jaxtyping import Float

from nestedvi._types import Key
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.low_rank import FULL_DIM, low_rank_of
from nestedvi.densities.mixtures import StudentMixture
from nestedvi.fitting.importance import refit
from nestedvi.fitting.mixtures import fit_mixture
from nestedvi.fitting.richer import around_particles, for_moves, low_rank_around_particles
from nestedvi.fitting.variational import Gaussian
from nestedvi.inference.quick import QuickBase
from nestedvi.smc.population import HamiltonianMove

__all__ = ["PlainBases", "held_out"]

# Particles are held out in runs of neighbours: after systematic resampling those share ancestors.
_FAMILY, _FOLDS = 20, 7
# A base that scores no more than so many nats above the one before is not worth another run.
_GAIN = 0.1
# Of the mixture for a few coordinates.
_COMPONENTS = 8

Moves = Float[np.ndarray, "moves particles dim"]


def held_out(num: int) -> np.ndarray:
    """Which of so many particles of a run are."""
    family = min(_FAMILY, -(-num // _FOLDS))
    return (np.arange(num) // family) % _FOLDS == 0


class PlainBases:
    """What particles make of what the quick way left."""

    def __init__(self, quick: QuickBase):
        self.quick = quick

    def move(self, dim: int) -> HamiltonianMove:
        """In a metric that does not come from few particles, where there is one."""
        if self.quick.gaussian is None or dim <= FULL_DIM:
            return HamiltonianMove()
        return HamiltonianMove(known=low_rank_of(self.quick.gaussian.root))

    def better(
        self, key: Key, before: AbstractSampleable, data: list[Moves], origins: int
    ) -> AbstractSampleable | None:
        """The best base for the last runs' particles, which descend from so many draws in the last
        of them; None if it is hardly better than the one before.
        """
        moves = np.concatenate(data)
        held = held_out(moves.shape[1])
        # Of the last run only: the base before was fitted to those of the run before that.
        rows = data[-1][:, held].reshape(-1, moves.shape[2])
        families = [self._of_particles]
        if self.quick.gaussian is not None:
            families.append(partial(self._mended, key, self.quick.gaussian, origins))
        scores = [np.mean(family(moves[:, ~held]).log_prob_many(rows)) for family in families]
        if max(scores) < np.mean(before.log_prob_many(rows)) + _GAIN:
            return None
        return families[int(np.argmax(scores))](moves)

    def _mended(
        self, key: Key, gaussian: Gaussian, origins: int, moves: Moves
    ) -> AbstractSampleable:
        """The Gaussian, given those coordinates that it is wrong about: of these particles know
        more, down to their tails.
        """
        z = moves.reshape(-1, moves.shape[2])
        # Moves of one particle say little more than one of them, and so do those of one ancestor.
        some = gaussian.wrong_in(z, origins)
        if not len(some):
            return for_moves(gaussian.as_mixture(moves.dtype))
        u = z[:, some].astype(np.float64)
        fitted = fit_mixture(key, u, _COMPONENTS)
        rough = StudentMixture(fitted.means, fitted.roots, fitted.log_weights)
        return gaussian.given(some, refit(rough, u, np.zeros(len(u))))

    def _of_particles(self, moves: Moves) -> AbstractSampleable:
        z = moves.swapaxes(0, 1).reshape(-1, moves.shape[2])
        trial = self.quick.trial
        if trial is None or not isinstance(trial.base, StudentMixture):
            spread = np.diag(z.std(axis=0, dtype=np.float64))
            base = StudentMixture(z.mean(axis=0)[None], spread[None], np.zeros(1))
        else:
            base = trial.base
        if z.shape[1] > FULL_DIM:
            return low_rank_around_particles(base, z)
        return for_moves(around_particles(base, z))
