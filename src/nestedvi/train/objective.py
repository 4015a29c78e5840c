"""What is minimised, over which parameters, with which estimator. Data only; the algebra is in
`divergences`.
"""

from collections.abc import Iterable
from typing import Literal

import equinox as eqx
import jax
from jaxtyping import PyTree

from nestedvi.divergences.f import AbstractDivergence, ReverseKL, get_divergence
from nestedvi.errors import MissingScoreError, UnknownNameError
from nestedvi.kernels.base import AbstractTransition
from nestedvi.sampler.level import GradientRule
from nestedvi.sampler.nested import NestedSampler

__all__ = ["GROUPS", "Objective", "as_objective"]

GROUPS = ("initial", "forward", "reverse", "path")
# What a bound takes for granted.
_OF_A_BOUND = {
    "divergence": (ReverseKL(),),
    "optimise": ("full",),
    "estimator": ("auto", "pathwise"),
    "weights": ("normalised",),
}


class Objective(eqx.Module):
    """A divergence at every level (`kind="nested"`) or a bound on log Z_K through all of them
    (`kind="bound"`).

    Args:
        divergence: "reverse-kl", "forward-kl", "chi-squared", "jensen-shannon", or any
            `AbstractDivergence`.
        kind: "nested" for a divergence at every level, "bound" for −log Ẑ itself, differentiated
            pathwise through all levels; of the other arguments only `learn` matters to a bound.
        learn: the groups to optimise, of initial (q_1), forward (q_k), reverse (r_k) and path
            (θ_k).
        optimise: "full", or "partial" for the right-hand side π̂ of each divergence only (q_k, and
            θ_{k-1} as proposal).
        estimator: "auto", or "pathwise" or "score" to force one gradient of q_k.
        sticking_the_landing: drop the part of the pathwise gradient whose mean is zero.
        baseline: subtract the leave-one-out mean in every score term. Without it the score term is
            biased when particles are few, because the normaliser is estimated from the same
            particles. With it that of reverse KL is not; other divergences keep a bias of order
            1/S.
        weights: "normalised" incoming weights (NVI) or "uniform" (AVO).

    Example:
        ```python
        nvi.Objective("forward-kl", learn=["forward", "path"])
        nvi.Objective(kind="bound", learn="forward")
        ```
    """

    kind: Literal["nested", "bound"] = eqx.field(static=True)
    divergence: AbstractDivergence
    learn: frozenset[str] = eqx.field(static=True)
    optimise: Literal["full", "partial"] = eqx.field(static=True)
    estimator: Literal["auto", "pathwise", "score"] = eqx.field(static=True)
    sticking_the_landing: bool = eqx.field(static=True)
    baseline: bool = eqx.field(static=True)
    weights: Literal["normalised", "uniform"] = eqx.field(static=True)

    def __init__(
        self,
        divergence: str | AbstractDivergence = "reverse-kl",
        *,
        kind: str = "nested",
        learn: str | Iterable[str] = ("forward", "reverse"),
        optimise: str = "full",
        estimator: str = "auto",
        sticking_the_landing: bool = True,
        baseline: bool = True,
        weights: str = "normalised",
    ):
        self.kind = _one_of("objective", kind, ("nested", "bound"))
        self.divergence = get_divergence(divergence)
        names = (learn,) if isinstance(learn, str) else learn
        self.learn = frozenset(_one_of("parameter group", name, GROUPS) for name in names)
        self.optimise = _one_of("choice of parameters", optimise, ("full", "partial"))
        self.estimator = _one_of("estimator", estimator, ("auto", "pathwise", "score"))
        self.sticking_the_landing, self.baseline = sticking_the_landing, baseline
        self.weights = _one_of("weighting", weights, ("normalised", "uniform"))
        if self.kind == "bound":
            given = {
                "divergence": self.divergence,
                "optimise": optimise,
                "estimator": estimator,
                "weights": weights,
            }
            idle = [name for name, value in given.items() if value not in _OF_A_BOUND[name]]
            if idle:
                raise ValueError(
                    "A bound is −log Ẑ, differentiated pathwise through all levels:"
                    f" {', '.join(idle)} would have no effect. Leave it out, or use kind='nested'."
                )
        if self.optimise == "partial" and "reverse" in self.learn:
            raise ValueError(
                "Partial optimisation holds the reverse kernels; take 'reverse' out of `learn` or"
                " use 'full'."
            )

    @property
    def score_only(self) -> bool:
        """Whether every draw's gradient comes by the score function."""
        return self.estimator == "score" or (
            self.estimator == "auto" and self.divergence.prefers_score
        )

    def gradient_rule(self, transition: AbstractTransition, *, first: bool = False) -> GradientRule:
        """Which gradients flow at a level with this transition (at the first level it is q_1)."""
        learned = ("initial" if first else "forward") in self.learn
        if (
            self.estimator == "pathwise"
            and learned
            and transition.holdable
            and not transition.reparameterised
        ):
            raise MissingScoreError(
                "The pathwise estimator was asked for, but the forward kernel of this"
                f" {type(transition).__name__} is not reparameterised: its gradient would be zero."
                " Use estimator='auto' or 'score'."
            )
        hold_q = self.sticking_the_landing and not self.score_only and transition.holdable
        if hold_q and not self.divergence.constant_slope and not transition.reparameterised:
            # Mixed kernels stick the landing for reverse KL only, where the dropped term has mean
            # zero part by part.
            hold_q = False
        return GradientRule(
            hold_q=hold_q,
            score_only=self.score_only,
            hold_theta=self.optimise == "partial",
            split=hold_q and not isinstance(self.divergence, ReverseKL),
        )

    def needs_two_particles(self, sampler: NestedSampler) -> bool:
        """Whether some learned draw gets its gradient by the score function."""
        levels = [("initial", sampler.first_level())] + [
            ("forward", sampler.level(k)) for k in range(2, sampler.num_levels + 1)
        ]
        movers = [
            level.transition
            for group, level in levels
            if group in self.learn and level.transition.holdable
        ]
        return self.kind == "nested" and any(
            self.score_only or not mover.reparameterised for mover in movers
        )

    def trainable(self, sampler: NestedSampler) -> PyTree:
        """A pytree of booleans shaped like the sampler: what is optimised."""
        nothing = jax.tree.map(lambda _: False, sampler)
        initial = _select(sampler.initial, "initial" in self.learn)
        path = sampler.path.trainable() if "path" in self.learn else nothing.path
        if isinstance(sampler.transitions, tuple):
            transitions: PyTree = tuple(self._trainable_transition(t) for t in sampler.transitions)
        else:
            mask = self._trainable_transition(sampler.transitions.transition)
            transitions = eqx.tree_at(lambda t: t.transition, sampler.transitions, mask)
        values = jax.tree.leaves((initial, path, transitions, nothing.resampling))
        return jax.tree.unflatten(jax.tree.structure(sampler), values)

    def _trainable_transition(self, transition: AbstractTransition) -> PyTree:
        return jax.tree.map(
            lambda x, group: eqx.is_inexact_array(x) and group in self.learn,
            transition,
            transition.groups(),
        )


def as_objective(objective: Objective | None) -> Objective:
    """The objective, or the reverse KL where none is given; an error that says what to pass for
    anything else.
    """
    if objective is None:
        return Objective()
    if not isinstance(objective, Objective):
        raise TypeError(
            f"The objective is an nvi.Objective; got {objective!r}. For a method's use"
            " nvi.get_method(name).make_objective(), for a divergence nvi.Objective(name)."
        )
    return objective


def _one_of(kind: str, name: str, known: tuple[str, ...]):
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return name


def _select(tree: PyTree, on: bool) -> PyTree:
    return jax.tree.map(lambda x: on and eqx.is_inexact_array(x), tree)
