"""Training a nested sampler: what is learned of it, step by step, in one of the orders of
execution. The loop is `loop`'s and the gradient that of `orders`; it refuses to know either.
"""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, Int, PyTree

from nestedvi._types import Key
from nestedvi.arguments import check_key, check_kind, check_whole
from nestedvi.devices import Devices, as_mesh, size_of
from nestedvi.paths.base import AbstractFixedSupportPath
from nestedvi.precision import in_full_precision
from nestedvi.sampler.nested import NestedSampler, Stacked
from nestedvi.train.fingerprint import describe_objective, digest_static
from nestedvi.train.learner import AbstractLearner, Gradient, State, as_optimiser
from nestedvi.train.loop import CHECKPOINT_SECONDS, MAX_NONFINITE, LoopOptions, train
from nestedvi.train.objective import Objective, as_objective
from nestedvi.train.orders import gradient, initial_population
from nestedvi.train.placement import NO_LEVELS, Placement, no_levels
from nestedvi.train.step_gradient import step_measures

__all__ = ["Fit", "Record", "Trainer", "fit"]


class Record(NamedTuple):
    """What every step reported: leading axis steps, then restarts if there are several. `level_*`
    end in an axis K.
    """

    log_Z_hat: Float[np.ndarray, "steps *restarts"]
    ess: Float[np.ndarray, "steps *restarts"]
    level_ess: Float[np.ndarray, "steps *restarts levels"]
    level_divergence: Float[np.ndarray, "steps *restarts levels"]


class Fit(NamedTuple):
    """A trained sampler, the record of its training, how many updates each level's gradient spoilt,
    the seconds spent, and the median time of a step (NaN if nothing ran after the first chunk,
    which compiles).

    Example:
        ```python
        sampler, objective = nvi.build(
            jax.random.key(0),
            "nvi",
            target=nvi.targets.ring(),
            initial=nvi.DiagonalNormal(jnp.zeros(2), 5.0),
            num_levels=3,
        )
        fit = nvi.fit(jax.random.key(1), sampler, objective, num_steps=20, num_particles=16)
        fit.record.level_divergence.shape  # (20, 3)
        ```
    """

    sampler: NestedSampler
    record: Record
    skipped: Int[np.ndarray, "*restarts levels"]
    num_steps: int
    seconds: float
    step_seconds: float

    def report(self, path: str | Path = "report.html", *, title: str = "Training") -> Path:
        """Writes one page that opens in any browser, without a network: what every level's
        divergence and ESS did from step to step. Returns the path.
        """
        # matplotlib takes a second to import: only those who look at a figure pay for it.
        from nestedvi.plot.training import write_training_report

        return write_training_report(
            path,
            self.record._asdict(),
            skipped=self.skipped,
            seconds=self.seconds,
            step_seconds=self.step_seconds,
            title=title,
        )


@in_full_precision
def fit(
    key: Key,
    sampler: NestedSampler,
    objective: Objective | None = None,
    *,
    num_steps: int,
    num_particles: int,
    optimiser: optax.GradientTransformation | None = None,
    order: str = "sequential",
    restarts: int | None = None,
    progress: Any = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    average: float | None = None,
    max_nonfinite: int = MAX_NONFINITE,
    devices: Devices = None,
) -> Fit:
    """Trains a sampler.

    Args:
        key: the randomness of all steps: each is folded from (key, step).
        sampler: what is trained; it stays as it is, and a trained copy is returned.
        objective: what to minimise over what; by default the reverse KL over forward and reverse
            kernels.
        num_steps: updates.
        num_particles: S, the particles at every level.
        optimiser: any optax optimiser; Adam with 1e-3 by default.
        order: "sequential" (memory flat in K), "two-phase", or "level-parallel" (time flat in K on
            an accelerator).
        restarts: train that many samplers side by side; `sampler` must then have been built with a
            leading axis of that size on every array (`nvi.stack(key, make, restarts)`).
        progress: True for a live bar, or an object with `start`, `update` and `stop`.
        checkpoint: a folder. Training resumes from it if it holds a checkpoint, and saves to it
            every `checkpoint_seconds`, at the end, and on Ctrl-C.
        checkpoint_seconds: between two saves.
        average: return the exponential moving average of the parameters with this decay (0.999,
            say) instead of the last ones; it takes out the noise that a constant learning rate
            leaves in them.
        max_nonfinite: stop with an error after that many non-finite gradients in a row; each is
            skipped and counted.
        devices: a number or a list of devices, which share the restarts if there are any, else the
            levels if the order is level-parallel, else the particles; or a mesh that says more
            (`nvi.devices.mesh(restarts=2, levels=4)`). One device by default.

    Example:
        ```python
        sampler, objective = nvi.build(
            jax.random.key(0),
            "nvir-star",
            target=nvi.targets.ring(),
            initial=nvi.DiagonalNormal(jnp.zeros(2), 5.0),
            num_levels=3,
        )
        fit = nvi.fit(jax.random.key(1), sampler, objective, num_steps=20, num_particles=16)
        trained = fit.sampler
        ```
    """
    check_key(key)
    check_kind("sampler", sampler, NestedSampler, "an nvi.NestedSampler, from nvi.build say")
    objective = as_objective(objective)
    num_particles = check_whole("num_particles", num_particles)
    num_steps = check_whole("num_steps", num_steps)
    restarts = None if restarts is None else check_whole("restarts", restarts)
    trainer = Trainer(sampler, objective, optimiser, order, num_particles, restarts, average)
    trainer.use(devices)
    options = LoopOptions(num_steps, progress, checkpoint, checkpoint_seconds, max_nonfinite)
    done = train(key, trainer, options)
    learned = trainer.sampler(done.params, trainer.fixed)
    return Fit(
        learned, Record(*done.record), done.skipped, done.num_steps, done.seconds, done.step_seconds
    )


class Trainer(AbstractLearner):
    """Learns a sampler, or several restarts of one under vmap."""

    def __init__(self, sampler, objective, optimiser, order, num_particles, restarts, average=None):
        self.objective, self.order = objective, order
        self.optimiser = as_optimiser(optimiser)
        self.num_particles, self.restarts, self.average = num_particles, restarts, average
        one = sampler if restarts is None else _first_restart(sampler, restarts)
        self.num_levels = one.num_levels
        trainable = objective.trainable(one)
        if not any(jax.tree.leaves(trainable)):
            raise ValueError(
                f"Nothing to learn: no parameters in the groups {sorted(objective.learn)} of this"
                " sampler. Plain AIS and SMC are run with evaluate(), not fitted."
            )
        # Options that contradict the sampler's kernels are refused before anything is compiled.
        for k in range(2, one.num_levels + 1):
            objective.gradient_rule(one.level(k).transition)
        self._stacked = isinstance(one.transitions, Stacked)
        self.adopt(sampler, trainable)

    def use(self, devices: Devices) -> None:
        """Lays training out over several devices."""
        axes = ("restarts", "levels", "particles")
        axis = "levels" if self.order == "level-parallel" else "particles"
        mesh = as_mesh(devices, "restarts" if self.restarts is not None else axis, axes)
        if mesh is None:
            return
        if size_of(mesh, "levels") > 1 and self.order != "level-parallel":
            raise ValueError(
                f"order={self.order!r} runs levels one after the other: they cannot lie on several"
                " devices. Use order='level-parallel', or the axes restarts and particles."
            )
        self.placement = Placement(mesh, self.restarts, self.num_levels - 1)
        self.placement.check(self.num_particles)

    def level_axes(self, module: PyTree) -> PyTree:
        axis = int(self.restarts is not None)

        def of_array(at, _):
            return axis if self._stacked and at[0].name == "transitions" else NO_LEVELS

        return jax.tree_util.tree_map_with_path(of_array, module)

    def carry_level_axes(self, carry: Any) -> Any:
        if carry is None:
            return None
        particles = jax.tree.map(lambda _: int(self.restarts is not None), carry.particles)
        return carry._replace(particles=particles, path=no_levels(carry.path))

    def sampler(self, params: PyTree, fixed: PyTree) -> NestedSampler:
        return eqx.combine(params, fixed, self.static)

    def gradient(
        self, key: Key, params: PyTree, fixed: PyTree, shared: PyTree, carry: Any
    ) -> Gradient:
        sampler = self.sampler(params, fixed)
        return gradient(
            key,
            sampler,
            self.objective,
            self.num_particles,
            order=self.order,
            population=carry,
        )

    def initial_carry(self, key: Key, params: PyTree, fixed: PyTree, shared: PyTree) -> Any:
        return initial_population(key, self.sampler(params, fixed), self.order, self.num_particles)

    def measures(self, record: Any) -> dict[str, float]:
        return step_measures(record, self.num_particles)

    def identity(self, state: State) -> dict[str, Any]:
        return {
            "order": self.order,
            "objective": describe_objective(self.objective),
            "num_particles": self.num_particles,
            "structure": digest_static(self.static),
            "densities": self._probe_path(state),
        }

    def _probe_path(self, state: State) -> list[str]:
        """A density may be any function: its values at one draw from q_1 tell two of them apart."""

        def one(params, fixed):
            sampler = self.sampler(params, fixed)
            path, first = sampler.path, sampler.first_level()
            stats = path.stats(sampler.initial.sample(jax.random.key(1)))
            values = [path.log_gamma(first.theta, stats, None)]
            if sampler.homogeneous and isinstance(path, AbstractFixedSupportPath):
                values += [
                    path.log_density(sampler.level(k).theta, stats)
                    for k in range(2, min(sampler.num_levels, 4) + 1)
                ]
                values.append(path.log_density(sampler.level(sampler.num_levels).theta, stats))
            return jnp.stack(values)

        return [
            f"{x:.4g}"
            for x in np.ravel(jax.jit(self._over_restarts(one, 0))(state.params, self.fixed))
        ]


def _first_restart(sampler: NestedSampler, restarts: int) -> NestedSampler:
    arrays, static = eqx.partition(sampler, eqx.is_array)
    sizes = {x.shape[0] if x.ndim else 0 for x in jax.tree.leaves(arrays)}
    if sizes != {restarts}:
        raise ValueError(
            f"With restarts = {restarts} every array of the sampler needs a leading axis of that"
            f" size; got {sorted(sizes)}. Build it with nvi.stack(key, make, restarts)."
        )
    return eqx.combine(jax.tree.map(lambda x: x[0], arrays), static)
