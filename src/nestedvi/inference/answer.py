"""What is asked of a way of answering and what it must give: weighted particles of a density on
vectors and its log Z, and how they came about, batch by batch and level by level.

`sample` turns the user's model into such a density and the answer back into the user's sites; the
rows of `nestedvi methods` and every other way of answering stand behind the one type below.

A request has its density in single and in double precision, and both are compared here. In single
precision a log density of large terms (counts of 10⁵, many rows) is off by far more than the
standard error of log Z. Where particles are of a density γ' that is the user's γ but for some
rounding, log w + log γ − log γ' are proper weights for γ. Where rounding is no longer small beside
one nat, two compiled programs do not even agree on γ', and all has to be computed again in double
precision. Nothing here samples.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from nestedvi._types import Key, LogWeights
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.base import AbstractDensity, log_values
from nestedvi.methods import Method
from nestedvi.particles.weights import log_Z_hat, log_Z_hat_stderr, normalise
from nestedvi.precision import double_precision
from nestedvi.smc.tempering import MAX_LEVELS, Tempering, find_transition
from nestedvi.storage.stages import KeptStages

__all__ = [
    "Answer",
    "AnswerFunction",
    "Cost",
    "LevelTrace",
    "PriorDraws",
    "Request",
    "RoundingError",
    "Trace",
    "check_rounding",
    "exactly",
    "first_order",
    "make_exact",
    "missed_modes",
    "unfinished",
    "weight_curve",
]

T = TypeVar("T")
_PIECE = 500
_POINTS = 101
# Rounding of log γ in single precision that weights can mend: its standard deviation.
_ROUNDING = 0.1
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
    many in each but the last. `family` is the first draw that each descends from, and
    `num_ancestors` how many of those there are.
    `drawn_log_w` are the log weights of first draws of which only some went on: what k̂ should see
    as well. Where all weights of a batch are equal, whatever the particles are, they have no tail
    that could tell: `weighted` is False. `exact` says that the weights are those of the density in
    double precision already, `in_other` that the particles are in the coordinates of
    `Request.other`. `trace` is what a report shows of batches and levels.
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
    in_other: bool = False
    trace: Trace | None = None
    family: Int[np.ndarray, " particles"] | None = None

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
    in already. `other` asks for the same in other coordinates, where those may suit better. The
    devices of `mesh` share moves and values of particles, and independent runs.
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
    kind: str = ""
    mesh: Mesh | None = None
    other: "Request | None" = None

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
        return self.kept.keep(f"{self.kind}{name}", compute)

    def in_double(self) -> "Request":
        """The same for the density in double precision, with stages of its own."""
        assert self.exact is not None
        other = None if self.other is None else self.other.in_double()
        kind = f"double {self.kind}"
        return replace(self, density=self.exact, exact=None, kind=kind, other=other)

    def behind(self, answer: Answer) -> "Request":
        """The one in whose coordinates an answer is."""
        return self.other if answer.in_other and self.other is not None else self

    def refuse(self, name: str, why: str) -> None:
        """Raises if the user gave the option `name`, which this way of answering has no use for."""
        if getattr(self, name) is not None:
            raise ValueError(f"method={self.method!r} takes no {name}: {why} Leave it out.")


AnswerFunction = Callable[[Key, Request], Answer]


def exact_target(target: Pullback, exact: AbstractDensity | None) -> Pullback:
    """The target in the same coordinates, in double precision where there is such a density. Use it
    inside `double_precision`.
    """
    if exact is None:
        return target
    shift, matrix = (np.asarray(x, np.float64) for x in (target.map.shift, target.map.matrix))
    return Pullback(exact, AffineMap(shift, matrix))


@contextmanager
def exactly(request: Request, target: Pullback) -> Iterator[Pullback]:
    """The target in double precision where the request has such a density, and that precision for
    as long as it is used.
    """
    with nullcontext() if request.exact is None else double_precision():
        yield exact_target(target, request.exact)


class RoundingError(Exception):
    """Single precision does not do for this density; `sample` turns to double."""


def _checked_rounding(request: Request, z: np.ndarray) -> np.ndarray:
    """log γ in double less that in single precision, at particles in the user's coordinates. Raises
    if it is more than weights can mend, or if the coordinates are too coarse.
    """
    exactly = _exact_values(request, z)
    off = _rounding(exactly, log_values(request.density, z))
    with np.errstate(invalid="ignore"):
        if not np.std(off) < _ROUNDING:
            raise RoundingError
    _check_coordinates(request, z, exactly)
    return off


def _exact_values(request: Request, z: np.ndarray) -> np.ndarray:
    assert request.exact is not None
    with double_precision():
        return log_values(request.exact, z.astype(np.float64))


def _rounding(exactly: np.ndarray, rough: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        off = exactly - rough
    # What has no mass in single precision was never a particle; what has none in double counts as
    # none.
    return np.where(np.isfinite(rough), np.where(np.isnan(off), -np.inf, off), 0.0)


def _check_coordinates(request: Request, z: np.ndarray, exactly: np.ndarray) -> None:
    """Raises if half a unit in the last place of the particles changes log γ: coordinates in single
    precision are too coarse where the density is as narrow as they are far apart. Particles of such
    a neck, as of a hierarchy, fall on its very axis, and their weight would be all there is.
    """
    z = np.asarray(z, np.float64)
    half = np.spacing(np.abs(z).astype(np.float32)).astype(np.float64) / 2
    beside = z + half * np.random.default_rng(len(z)).choice([-1.0, 1.0], size=z.shape)
    with np.errstate(invalid="ignore"):
        change = _exact_values(request, beside) - exactly
    # A particle that has no mass in double has no weight, wherever it is.
    change = np.where(np.isnan(change), 0.0, change)
    if not np.mean(change**2) < _ROUNDING**2:
        raise RoundingError


def check_rounding(request: Request, z: np.ndarray) -> None:
    """Raises `RoundingError` if log γ of these particles, in the user's coordinates, is rounded by
    more than weights can mend.
    """
    if request.exact is not None:
        _checked_rounding(request, z)


def make_exact(answer: Answer, request: Request) -> Answer:
    """The answer with weights, log Z and its standard error for the density in double precision."""
    if request.exact is None or answer.exact:
        return answer
    off = _checked_rounding(request, np.asarray(answer.z))
    log_w = np.asarray(answer.log_w, np.float64) + off
    batch = np.arange(len(log_w)) // -(-len(log_w) // answer.num_batches)
    before, after = (
        np.array([log_Z_hat(w[batch == b]) for b in range(answer.num_batches)])
        for w in (log_w - off, log_w)
    )
    shift = float(log_Z_hat(after) - log_Z_hat(before))
    stderr = max(answer.log_Z_stderr, float(log_Z_hat_stderr(after)[1]))
    if np.std(off) < 1e-3:
        stderr = answer.log_Z_stderr
    return answer._replace(log_w=log_w, log_Z=answer.log_Z + shift, log_Z_stderr=stderr, exact=True)


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
