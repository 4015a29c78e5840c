"""Benchmark of speed: one training step's time, compile time and memory. Numbers for comparison,
never for assertions.
"""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.grid.cells import recorded
from nestedvi.methods import build, get_method
from nestedvi.sampler.nested import NestedSampler
from nestedvi.storage.files import provenance
from nestedvi.targets import ring
from nestedvi.train.fit import Trainer
from nestedvi.train.learner import CHUNK
from nestedvi.train.objective import Objective
from nestedvi.train.orders import gradient, initial_population

__all__ = ["StepBench", "bench_step", "gradient_temp_bytes"]


@dataclass(frozen=True)
class StepBench:
    """One training step of a method on the ring."""

    method: str = "nvir-star"
    levels: int = 8
    particles: int = 36
    order: str = "sequential"
    steps: int = 200
    repeats: int = 15
    seed: int = 0


def bench_step(config: StepBench) -> dict[str, Any]:
    """Median and spread of the step time, compile time, and XLA's temporary bytes of one
    gradient.
    """
    if not 1 <= config.steps <= CHUNK or config.particles < 1:
        raise ValueError(
            f"A benchmark needs 1 to {CHUNK} steps and particles ≥ 1; got {config.steps} and"
            f" {config.particles}."
        )
    key = jax.random.key(config.seed)
    method = get_method(config.method)
    objective = method.make_objective()
    sampler = build(
        key,
        method,
        target=ring(),
        initial=DiagonalNormal(jnp.zeros(2), 5.0),
        num_levels=config.levels,
    ).sampler
    trainer = Trainer(sampler, objective, None, config.order, config.particles, None)
    state = trainer.start(key)
    began = time.perf_counter()
    chunk = trainer.chunk.lower(key, state, trainer.inputs, 0, 1).compile()
    compile_seconds = time.perf_counter() - began
    times = []
    for i in range(config.repeats + 2):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(
            chunk(key, state, trainer.inputs, i * config.steps, config.steps)
        )
        times.append((time.perf_counter() - began) / config.steps)
    times = times[2:]
    return {
        **recorded(config),
        "step_seconds_median": statistics.median(times),
        "step_seconds_min": min(times),
        "step_seconds_max": max(times),
        "compile_seconds": compile_seconds,
        "xla_temp_bytes": gradient_temp_bytes(sampler, objective, config.particles, config.order),
        "parameter_bytes": sum(x.nbytes for x in jax.tree.leaves(trainer.params)),
        **provenance(config.seed),
    }


def gradient_temp_bytes(
    sampler: NestedSampler, objective: Objective, num_particles: int, order: str
) -> int:
    """XLA's temporary bytes of one gradient; its inputs and outputs, which are as large as the
    parameters, are not counted.
    """
    key = jax.random.key(0)
    arrays, static = eqx.partition(sampler, eqx.is_array)
    population = initial_population(key, sampler, order, num_particles)

    def grads(key, arrays, population):
        result = gradient(
            key,
            eqx.combine(arrays, static),
            objective,
            num_particles,
            order=order,
            population=population,
        )
        return result.grads, result.finite, result.info, result.carry

    memory: Any = jax.jit(grads).lower(key, arrays, population).compile().memory_analysis()
    return int(memory.temp_size_in_bytes)
