"""How an answer came about, batch by batch and level by level: what a report shows beside the
particles. It reads runs that are over, and runs nothing.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from nestedvi.particles.weights import ess, normalise
from nestedvi.paths.annealing import Annealing
from nestedvi.sampler.nested import NestedSampler
from nestedvi.sampler.run import Run
from nestedvi.smc.tempering import Tempering

__all__ = ["LevelTrace", "Trace", "trace_runs", "trace_tempering", "weight_curve"]

_POINTS = 101


class LevelTrace(NamedTuple):
    """One batch's levels: β where the path has temperatures, and the ESS of each level's weights as
    a share of its particles.
    """

    beta: Float[np.ndarray, " levels"] | None
    ess_share: Float[np.ndarray, " levels"]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists."""
        beta = None if self.beta is None else [float(x) for x in self.beta]
        return {"beta": beta, "ess_share": [float(x) for x in self.ess_share]}


class Trace(NamedTuple):
    """What every batch estimated, how many first draws its particles descend from, its levels, and
    how unequal the weights of all first draws are: the share of weight that the largest i/100 of
    them carry.
    """

    log_Z: Float[np.ndarray, " batches"]
    num_ancestors: Int[np.ndarray, " batches"]
    levels: tuple[LevelTrace, ...] = ()
    weight_share: Float[np.ndarray, " points"] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for a file."""
        return {
            "batches": {
                "log_Z": [float(x) for x in self.log_Z],
                "num_ancestors": [int(x) for x in self.num_ancestors],
            },
            "levels": [level.to_dict() for level in self.levels],
            "weight_share": None
            if self.weight_share is None
            else [float(x) for x in self.weight_share],
        }


def weight_curve(log_w: Any) -> Float[np.ndarray, " points"]:
    """The share of all weight that the largest i/100 of the draws carry, i = 0 … 100."""
    w_bar = np.sort(np.asarray(normalise(np.asarray(log_w, np.float64))))[::-1]
    at = np.arange(len(w_bar) + 1) / len(w_bar)
    return np.interp(np.linspace(0, 1, _POINTS), at, np.concatenate([[0.0], np.cumsum(w_bar)]))


def trace_tempering(run: Tempering) -> Trace:
    """Batches of one run, along the same temperatures."""
    return Trace(
        run.log_Z_hats,
        run.origins,
        tuple(_tempered_levels(run, batch) for batch in range(len(run.log_w))),
        weight_curve(run.drawn_log_w),
    )


def _tempered_levels(run: Tempering, batch: int) -> LevelTrace:
    """The weights that lead to temperature k are those of the particles at k − 1."""
    steps, num = np.diff(run.betas, prepend=0.0), run.log_w.shape[1]
    ratios = run.log_ratios.reshape(-1, *run.log_w.shape)[:, batch]
    shares = [
        float(ess(step * log_ratio)) / num for step, log_ratio in zip(steps, ratios, strict=False)
    ]
    return LevelTrace(run.betas, np.array(shares))


def trace_runs(runs: Run, sampler: NestedSampler) -> Trace:
    """Batches of one sampler, stacked."""
    num_batches, per_batch = runs.particles.log_w.shape
    draws = np.full(runs.info.ess.shape[1], per_batch)
    draws[0] = runs.drawn_log_w.shape[1]
    shares = np.asarray(runs.info.ess, np.float64) / draws
    beta = None
    if isinstance(sampler.path, Annealing):
        beta = np.asarray(sampler.path.schedule.betas(), np.float64)
    return Trace(
        np.asarray(_log_Z(runs), np.float64),
        np.asarray(_num_ancestors(runs)),
        tuple(LevelTrace(beta, shares[b]) for b in range(num_batches)),
        weight_curve(np.ravel(runs.drawn_log_w)),
    )


_num_ancestors = jax.jit(jax.vmap(lambda one: one.num_ancestors))
_log_Z = jax.jit(jax.vmap(lambda one: one.log_Z_hat))
