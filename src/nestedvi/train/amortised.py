"""Amortised training: one set of networks makes a sampler for each instance of a data set, and
learns from all of them.

A program maps an instance to a `NestedSampler`. A step draws a batch of instances, takes each
sampler's gradient as `orders` does, and pulls it back through the program. An instance whose
gradient is not finite is left out of the batch and counted.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec
from jaxtyping import Float, Int, PyTree

from nestedvi._types import Key
from nestedvi.arguments import check_key, check_whole
from nestedvi.devices import Devices, as_mesh, check_divides, num_along
from nestedvi.precision import in_full_precision
from nestedvi.sampler.nested import NestedSampler
from nestedvi.train.fingerprint import describe_objective, digest_static
from nestedvi.train.learner import AbstractLearner, Gradient, State, as_optimiser
from nestedvi.train.loop import CHECKPOINT_SECONDS, MAX_NONFINITE, LoopOptions, train
from nestedvi.train.objective import Objective, as_objective
from nestedvi.train.orders import get_order, gradient
from nestedvi.train.placement import Placement
from nestedvi.train.step_gradient import step_measures

__all__ = ["AmortisedFit", "AmortisedRecord", "AmortisedTrainer", "fit_amortised"]


class AmortisedRecord(NamedTuple):
    """What every step reported, as means over its batch: leading axis steps, then restarts if there
    are several.
    """

    log_Z_hat: Float[np.ndarray, "steps *restarts"]
    ess: Float[np.ndarray, "steps *restarts"]
    divergence: Float[np.ndarray, "steps *restarts"]
    dropped: Int[np.ndarray, "steps *restarts"]


class AmortisedFit(NamedTuple):
    """A trained program, the record of its training, the number of instances left out of their
    batch, and the time spent.
    """

    program: Any
    record: AmortisedRecord
    dropped: int
    num_steps: int
    seconds: float
    step_seconds: float


class AmortisedTrainer(AbstractLearner):
    """Learns a program from instances to samplers."""

    def __init__(
        self,
        program,
        objective,
        data,
        optimiser,
        order,
        num_particles,
        batch_size,
        restarts,
        average,
    ):
        get_order(order)
        if order == "level-parallel":
            raise ValueError(
                "Level-parallel training keeps one sampler's particles between steps; here each"
                " step has other samplers."
            )
        self.objective, self.order, self.num_particles, self.batch_size = (
            objective,
            order,
            num_particles,
            batch_size,
        )
        self.optimiser = as_optimiser(optimiser)
        self.restarts, self.average = restarts, average
        sizes = {np.shape(x)[0] if np.ndim(x) else 0 for x in jax.tree.leaves(data)}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError(
                "Every array of the data needs one leading axis of instances; got leading sizes"
                f" {sorted(sizes)}."
            )
        (self.num_instances,) = sizes
        self.shared = jax.tree.map(jnp.asarray, data)
        self.adopt(program, eqx.is_inexact_array)
        if not jax.tree.leaves(self.params):
            raise ValueError("Nothing to learn: the program holds no floating-point arrays.")
        self._check_program()
        self.num_levels = 1

    def _check_program(self) -> None:
        """Refuses a program that does not fit before anything is compiled."""
        one = (lambda x: x) if self.restarts is None else (lambda x: x[0])

        def check(params, fixed, data):
            sampler = self.program(params, fixed)(jax.tree.map(lambda x: x[0], data))
            if not isinstance(sampler, NestedSampler):
                raise TypeError(
                    "The program must make a NestedSampler from one instance; got"
                    f" {type(sampler).__name__}."
                )
            if not any(jax.tree.leaves(self.objective.trainable(sampler))):
                raise ValueError(
                    f"Nothing to learn: no parameters in the groups {sorted(self.objective.learn)}"
                    " of the samplers."
                )
            self.objective.gradient_rule(sampler.level(2).transition)

        jax.eval_shape(
            check, jax.tree.map(one, self.params), jax.tree.map(one, self.fixed), self.shared
        )

    def use(self, devices: Devices) -> None:
        """Lays training out over several devices."""
        axes = ("restarts", "instances", "particles")
        mesh = as_mesh(devices, "instances" if self.restarts is None else "restarts", axes)
        if mesh is None:
            return
        check_divides(self.batch_size, "batch_size", mesh, "instances")
        self.placement = Placement(mesh, self.restarts)
        self.placement.check(self.num_particles)

    def program(self, params: PyTree, fixed: PyTree) -> Any:
        return eqx.combine(params, fixed, self.static)

    def gradient(
        self, key: Key, params: PyTree, fixed: PyTree, shared: PyTree, carry: Any
    ) -> Gradient:
        key_batch, key_levels = jax.random.split(key)
        picks = jax.random.randint(key_batch, (self.batch_size,), 0, self.num_instances)
        batch = jax.tree.map(lambda x: x[picks], shared)
        keys = jax.random.split(key_levels, self.batch_size)
        grads, good, measures = self._many()(keys, batch, params, fixed)
        count = jnp.maximum(jnp.sum(good), 1)

        def mean(values):
            kept = good.reshape((-1,) + (1,) * (values.ndim - 1))
            return jnp.sum(jnp.where(kept, values, 0), axis=0) / count.astype(values.dtype)

        log_Z_hat, size, divergence = (mean(x) for x in measures)
        dropped = jnp.sum(jnp.logical_not(good))
        info = AmortisedRecord(log_Z_hat, size, divergence, dropped)  # type: ignore[arg-type]
        return Gradient(jax.tree.map(mean, grads), jnp.any(good)[None], info, carry)

    def _many(self) -> Callable[..., Any]:
        """`_instance_gradient` of a batch, over the devices where these share the instances."""
        many = jax.vmap(self._instance_gradient, in_axes=(0, 0, None, None))
        if num_along("instances") == 1:
            return many
        own, same = PartitionSpec("instances"), PartitionSpec()
        return jax.shard_map(
            many,
            in_specs=(own, own, same, same),
            out_specs=own,
            axis_names={"instances"},
            # Rejection samplers (gamma, beta) do not pass the check.
            check_vma=False,
        )

    def _instance_gradient(self, key: Key, x: PyTree, params: PyTree, fixed: PyTree) -> Any:
        """One sampler's gradient, pulled back through the program; whether it is finite; log Ẑ, ESS
        and the divergence.
        """
        sampler = self.program(params, fixed)(x)
        mask = self.objective.trainable(sampler)
        result = gradient(key, sampler, self.objective, self.num_particles, order=self.order)
        _, pull = jax.vjp(lambda p: eqx.filter(self.program(p, fixed)(x), mask), params)
        (grads,) = pull(result.grads)
        whole = jax.tree.reduce(
            jnp.logical_and,
            jax.tree.map(lambda g: jnp.all(jnp.isfinite(g)), grads),
            jnp.array(True),
        )
        measures = (
            result.info.log_Z_hat,
            result.info.ess,
            jnp.sum(result.info.level_divergence),
        )
        return grads, whole & jnp.all(result.finite), measures

    def initial_carry(self, key: Key, params: PyTree, fixed: PyTree, shared: PyTree) -> None:
        return None

    def measures(self, record: AmortisedRecord) -> dict[str, float]:
        return step_measures(record, self.num_particles)

    def identity(self, state: State) -> dict[str, Any]:
        return {
            "order": self.order,
            "objective": describe_objective(self.objective),
            "num_particles": self.num_particles,
            "batch_size": self.batch_size,
            "structure": digest_static(self.static),
        }


@in_full_precision
def fit_amortised(
    key: Key,
    program: Callable[[PyTree], NestedSampler],
    data: PyTree,
    objective: Objective | None = None,
    *,
    num_steps: int,
    num_particles: int,
    batch_size: int = 16,
    optimiser: optax.GradientTransformation | None = None,
    order: str = "sequential",
    restarts: int | None = None,
    progress: Any = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    average: float | None = None,
    max_nonfinite: int = MAX_NONFINITE,
    devices: Devices = None,
) -> AmortisedFit:
    """Trains a program over a data set.

    Args:
        key: the randomness of all steps.
        program: an `eqx.Module` that makes a `NestedSampler` from one instance. Its floating-point
            arrays are what is learned; write constants as Python numbers.
        data: a pytree of arrays with a leading axis of instances, kept on the device.
        objective: by default the reverse KL; its groups say which parts of the samplers pass
            gradients to the program.
        num_steps: updates.
        num_particles: S, for each instance.
        batch_size: instances a step, drawn at random.
        optimiser: as in `fit`.
        order: as in `fit`.
        restarts: as in `fit`.
        progress: as in `fit`.
        checkpoint: as in `fit`.
        checkpoint_seconds: as in `fit`.
        average: as in `fit`.
        max_nonfinite: as in `fit`. An instance with a non-finite gradient is left out of its batch
            and counted in `dropped`.
        devices: a number or a list of devices, which share the restarts if there are any, else the
            instances of a batch; or a mesh with the axes `restarts`, `instances` and `particles`.
            Every device holds all data.

    Example:
        ```python
        class Walk(nvi.AbstractStateSpaceModel):
            def log_initial(self, z):
                return dist.Normal(0.0, 1.0).log_prob(z)

            def log_transition(self, z, z_prev):
                return dist.Normal(z_prev, 1.0).log_prob(z)

            def log_observation(self, x, z):
                return dist.Normal(z, 0.5).log_prob(x)

        class Step(eqx.Module):
            log_scale: jax.Array

            def __call__(self, z, context):
                return dist.Normal(z, jnp.exp(self.log_scale))

        class Program(eqx.Module):
            step: Step

            def __call__(self, xs):
                kernel = nvi.DistributionKernel(self.step, reparameterised=True)
                move = nvi.Shared(nvi.Transition(kernel), len(xs) - 1)
                return nvi.NestedSampler(dist.Normal(0.0, 1.0), nvi.StateSpace(Walk(), xs), move)

        series = jnp.cumsum(jax.random.normal(jax.random.key(0), (20, 4)), axis=1)

        objective = nvi.Objective("forward-kl", learn="forward")
        fit = nvi.fit_amortised(
            jax.random.key(1),
            Program(Step(jnp.array(0.0))),
            series,
            objective,
            num_steps=10,
            num_particles=10,
            batch_size=4,
        )
        fit.program.step.log_scale
        ```
    """
    check_key(key)
    num_particles = check_whole("num_particles", num_particles)
    batch_size = check_whole("batch_size", batch_size)
    restarts = None if restarts is None else check_whole("restarts", restarts)
    objective = as_objective(objective)
    trainer = AmortisedTrainer(
        program, objective, data, optimiser, order, num_particles, batch_size, restarts, average
    )
    trainer.use(devices)
    options = LoopOptions(num_steps, progress, checkpoint, checkpoint_seconds, max_nonfinite)
    done = train(key, trainer, options)
    learned = trainer.program(done.params, trainer.fixed)
    return AmortisedFit(
        learned,
        done.record,
        int(done.record.dropped.sum()),
        done.num_steps,
        done.seconds,
        done.step_seconds,
    )
