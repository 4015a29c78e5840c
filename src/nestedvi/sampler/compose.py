"""Samplers written down as programs: `compose(propose(…), resample(…), propose(…), extend(…), …)`.

Each combinator keeps proper weighting (Stites, Zimmermann et al. 2021), so any composition is a
valid sampler; `compose` returns a `NestedSampler`, which runs, trains and is evaluated like every
other. It refuses to run anything.
"""

from typing import Any, NamedTuple

from nestedvi.densities.base import AbstractDensity, AbstractSampleable, as_density, as_sampleable
from nestedvi.kernels.base import AbstractKernel, AbstractTransition, Transition
from nestedvi.kernels.product import Append
from nestedvi.particles.resampling import AbstractScheme, Resampling
from nestedvi.paths.sequence import DensitySequence
from nestedvi.sampler.nested import NestedSampler

__all__ = ["compose", "extend", "propose", "resample"]


class _Stage(NamedTuple):
    """One combinator's contribution: a proposal or transition with the density it targets, or a
    resampling rule.
    """

    mover: AbstractSampleable | AbstractTransition | None
    density: AbstractDensity | None
    resampling: Resampling | None
    learn: bool


def propose(via: Any, target: Any, *, learn_target: bool = False) -> _Stage:
    """Moves particles by `via` and reweights them for `target`.

    First in a program, `via` is a distribution q_1; later it is a transition, or a pair (forward
    kernel, reverse kernel).

    Args:
        via: q_1 in the first stage; later a transition, or a pair (forward kernel, reverse kernel).
        target: the density that the moved particles are weighted for.
        learn_target: whether arrays of `target` are learned with "path".

    Example:
        ```python
        key_forward, key_reverse = jax.random.split(jax.random.key(0))
        pair = nvi.ResidualGaussian(1, key=key_forward), nvi.ResidualGaussian(1, key=key_reverse)
        sampler = nvi.compose(
            nvi.propose(nvi.DiagonalNormal(jnp.zeros(1), 2.0), lambda z: -jnp.sum(z**2)),
            nvi.propose(pair, lambda z: -jnp.sum(z**4)),
        )
        ```
    """
    if isinstance(via, tuple):
        if len(via) != 2:
            raise TypeError(
                f"propose wants a pair (forward kernel, reverse kernel); got a tuple of {len(via)}."
            )
        via = Transition(*via)
    elif isinstance(via, AbstractKernel):
        raise TypeError(
            f"{type(via).__name__} alone moves particles on a fixed space and needs a reverse"
            " kernel: propose((forward, reverse), target). If the particle grows instead, use"
            " extend(kernel, target)."
        )
    elif not isinstance(via, AbstractTransition):
        via = as_sampleable(via)
    return _Stage(via, as_density(target), None, learn_target)


def extend(kernel: AbstractKernel, target: Any, *, learn_target: bool = False) -> _Stage:
    """Appends one more entry, drawn by `kernel` given the last, and reweights for `target` on the
    longer particle.

    Args:
        kernel: draws the new entry given the last.
        target: a density of the longer particle, a tuple of entries.
        learn_target: whether arrays of `target` are learned with "path".

    Example:
        ```python
        step = nvi.DistributionKernel(lambda z, context: dist.Normal(z, 1.0), reparameterised=True)
        start = dist.Normal(0.0, 1.0)

        def two_states(z):
            return start.log_prob(z[0]) + dist.Normal(z[0], 1.0).log_prob(z[1])

        sampler = nvi.compose(nvi.propose(start, start.log_prob), nvi.extend(step, two_states))
        ```
    """
    return _Stage(Transition(Append(kernel)), as_density(target), None, learn_target)


def resample(scheme: str | AbstractScheme = "systematic", when: str | float = "always") -> _Stage:
    """Resamples the particles that the program has made so far.

    Args:
        scheme: as in `nvi.Resampling`.
        when: as in `nvi.Resampling`.

    Example:
        ```python
        start = nvi.DiagonalNormal(jnp.zeros(1), 2.0)
        sampler = nvi.compose(
            nvi.propose(start, start),
            nvi.resample("residual", when=0.5),
            nvi.propose(nvi.RandomWalk(0.5), lambda z: -jnp.sum(z**4)),
        )
        ```
    """
    return _Stage(None, None, Resampling(scheme, when), False)


def compose(*stages: _Stage) -> NestedSampler:
    """The sampler that runs the stages in order.

    Args:
        stages: what `propose`, `extend` and `resample` return, in order; the first is `propose(q_1,
            target)`.

    Example:
        ```python
        sampler = nvi.compose(
            nvi.propose(nvi.DiagonalNormal(jnp.zeros(1), 2.0), lambda z: -jnp.sum(z**2)),
            nvi.resample("stratified", when=0.5),
            nvi.propose(nvi.RandomWalk(0.5), lambda z: -jnp.sum(z**4)),
        )
        ```
    """
    if not stages or not isinstance(stages[0].mover, AbstractSampleable):
        raise ValueError(
            "A program starts with propose(q_1, target) for a distribution q_1 that can be sampled."
        )
    densities, transitions, rules, learn = [stages[0].density], [], [], [stages[0].learn]
    pending: Resampling | None = None
    for stage in stages[1:]:
        if stage.resampling is not None:
            if pending is not None:
                raise ValueError("Two resample stages in a row; keep one.")
            pending = stage.resampling
            continue
        if not isinstance(stage.mover, AbstractTransition):
            raise ValueError(
                "Only the first stage of a program may be a distribution; later ones are"
                " transitions."
            )
        transitions.append(stage.mover)
        densities.append(stage.density)
        learn.append(stage.learn)
        rules.append(pending or Resampling(when="never"))
        pending = None
    if pending is not None:
        raise ValueError(
            "A program ends with a move: a last resample would only add noise to the weights."
        )
    return NestedSampler(
        stages[0].mover, DensitySequence(densities, learn), tuple(transitions), tuple(rules)
    )
