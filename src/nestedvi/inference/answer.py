"""What a way of answering must give: weighted particles of a density on vectors and its log Z, and
how they came about, batch by batch and level by level.

`sample` turns the user's model into such a density and the answer back into the user's sites; the
rows of `nestedvi methods` and every other way of answering stand behind the one type below. A
tempered run that is over becomes an answer here too. Nothing here runs anything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, LogWeights
from nestedvi.densities.affine import Pullback
from nestedvi.densities.base import AbstractDensity
from nestedvi.methods import Method
from nestedvi.particles.weights import ess, log_Z_hat_stderr, normalise
from nestedvi.smc.tempering import MAX_LEVELS, Tempering, find_transition
from nestedvi.storage.stages import KeptStages

__all__ = [
    "Answer",
    "AnswerFunction",
    "Cost",
    "LevelTrace",
    "PriorDraws",
    "Request",
    "Trace",
    "answer_from_followed",
    "first_order",
    "missed_modes",
    "trace_tempering",
    "unfinished",
    "weight_curve",
]

T = TypeVar("T")
_PIECE = 500
_POINTS = 101
# By how much Laplace's approximation of the modes' mass may exceed log Z: it is one.
_MISSED = 0.4
# (key, num) -> num draws of the prior, in the coordinates of the density.
PriorDraws = Callable[[Key, int], Float[Array, "particles dim"] | np.ndarray]


class Cost(NamedTuple):
    """What was asked of the target for each particle that is returned: gradients to find and learn
    the sampler, gradients to run it, and values besides (of draws from a base, of weights), all of
    them."""

    learning: float
    sampling: float
    values: float


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


class Answer(NamedTuple):
    """Weighted particles in the density's coordinates, log Z with its standard error, and what went
    wrong in whole sentences.

    Particles are in the order of the `num_batches` independent batches that they are from, equally
    many in each but the last. `num_ancestors` is how many first draws they descend from.
    `drawn_log_w` are the log weights of first draws of which only some went on: what k̂ should see
    as well. Where all weights of a batch are equal, whatever the particles are, they have no tail
    that could tell: `weighted` is False. `exact` says that the weights are those of the density in
    double precision already. `trace` is what a report shows of batches and levels.
    """

    z: Float[Array, "particles dim"] | np.ndarray
    log_w: LogWeights | np.ndarray
    log_Z: float
    log_Z_stderr: float
    num_batches: int = 1
    num_ancestors: int | None = None
    diagnosis: tuple[str, ...] = ()
    sampler: Any = None
    cost: Cost | None = None
    drawn_log_w: LogWeights | np.ndarray | None = None
    weighted: bool = True
    timings: Mapping[str, float] = MappingProxyType({})
    exact: bool = False
    trace: Trace | None = None

    def with_search(self, gradients: float, values: float) -> "Answer":
        """With what a search asked of the target, for each particle, added to the cost."""
        assert self.cost is not None
        learning, sampling, before = self.cost
        return self._replace(cost=Cost(learning + gradients, sampling, before + values))


@dataclass(frozen=True)
class Request:
    """What is asked for: particles of a density on vectors of `dim` numbers.

    `num_levels` and `num_steps` are None where the user gave none: each way of answering has
    numbers of its own. `prior` draws from the model's prior where it has one; a way of answering
    may start from it or ignore it. `kept` are the stages that are done, where the user gave a
    folder for them. `exact` is the density in double precision, where that is not what `density` is
    in already. The devices of `mesh` share moves and values of particles, and independent runs.
    """

    density: AbstractDensity
    dim: int
    num_particles: int = 2000
    method: str | Method = "auto"
    num_levels: int | None = None
    num_steps: int | None = None
    progress: Any = False
    prior: PriorDraws | None = None
    names: tuple[str, ...] = ()
    kept: KeptStages | None = None
    exact: AbstractDensity | None = None
    doubled: bool = False
    mesh: Mesh | None = None

    @property
    def piece(self) -> int:
        """Particles that are moved at once. Programs for one number serve runs of any number; an
        accelerator is best at all of them together.
        """
        few = min(_PIECE, self.num_particles)
        return few if jax.default_backend() == "cpu" else self.num_particles

    def keep(self, name: str, compute: Callable[[], T]) -> T:
        """The result of a stage: computed, or read where the user gave a folder and an earlier call
        had come as far. Everything that `compute` uses is made from the call's own arguments.
        """
        if self.kept is None:
            return compute()
        return self.kept.keep(f"double {name}" if self.doubled else name, compute)

    def refuse(self, name: str, why: str) -> None:
        """Raises if the user gave the option `name`, which this way of answering has no use for."""
        if getattr(self, name) is not None:
            raise ValueError(f"method={self.method!r} takes no {name}: {why} Leave it out.")


AnswerFunction = Callable[[Key, Request], Answer]


def answer_from_followed(run: Tempering, target: Pullback, num_particles: int) -> Answer:
    """Batches that followed a tuned run as one answer in the density's own coordinates."""
    log_Z, stderr = log_Z_hat_stderr(run.log_Z_hats)
    z = target.map(jnp.asarray(run.z[:num_particles]))
    return Answer(
        z,
        run.log_w.reshape(-1)[:num_particles],
        float(log_Z),
        float(stderr),
        num_batches=len(run.log_w),
        num_ancestors=int(run.origins.sum()),
        drawn_log_w=run.drawn_log_w,
        trace=trace_tempering(run),
    )


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


def unfinished(run: Tempering) -> tuple[str, ...]:
    """A sentence if a run did not reach the target."""
    if float(run.beta) < 1:
        return (
            f"Tempering stopped at β = {float(run.beta):.3f} of 1 after {MAX_LEVELS} temperatures:"
            " the particles are not the target's.",
        )
    return ()


def first_order(run: Tempering) -> tuple[str, ...]:
    """A sentence if particles at some temperature are in two groups that do not exchange any."""
    transition = find_transition(run)
    if transition is None:
        return ()
    return (
        f"There is a first-order transition: at β = {transition.beta:.3g} the log ratios of"
        f" {100 * transition.share:.2g} % of the particles are {transition.gap:.2g} nats above the"
        " others', with nothing between. Particles hardly cross such a gap, so that the share of a"
        " narrow part is left to chance, and log Z may be off by more than its standard error says."
        " Use method='nested-sampling' or more particles.",
    )


def missed_modes(log_mass: float, answer: Answer) -> tuple[str, ...]:
    """A mode that climbs found and particles did not has more mass than all that they report."""
    gap = log_mass - answer.log_Z
    if gap <= max(_MISSED, 6 * answer.log_Z_stderr):
        return ()
    return (
        f"Modes that optimisation found have, by Laplace's approximation, e^{gap:.1f} times the"
        " mass that the particles account for: they miss a narrow mode, and log Z is too low.",
    )
