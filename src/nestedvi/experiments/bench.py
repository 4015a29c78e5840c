"""Benchmarks of one training step: time, compile time, memory. Numbers for comparison, never for assertions."""

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.densities.targets import ring
from nestedvi.methods import build, get_method
from nestedvi.report.files import provenance
from nestedvi.train.fit import CHUNK, Trainer
from nestedvi.train.schedules import gradient

__all__ = ["StepBench", "bench_step"]


@dataclass(frozen=True)
class StepBench:
    """One training step of a method on the ring."""

    method: str = "nvir-star"
    levels: int = 8
    particles: int = 36
    schedule: str = "sequential"
    steps: int = 200
    repeats: int = 15
    seed: int = 0


def bench_step(config: StepBench) -> dict[str, Any]:
    """Median and spread of the step time, compile time, and XLA's temporary bytes of one gradient.

    Temporaries are those of the gradient alone: its inputs and outputs, which are as large as the parameters, are not counted.
    """
    if not 1 <= config.steps <= CHUNK or config.particles < 1:
        raise ValueError(f"A benchmark needs 1 to {CHUNK} steps and particles ≥ 1; got {config.steps} and {config.particles}.")
    key = jax.random.key(config.seed)
    method = get_method(config.method)
    objective = method.make_objective()
    sampler = build(method, key, target=ring(), initial=DiagonalNormal(jnp.zeros(2), 5.0), num_levels=config.levels)
    trainer = Trainer(sampler, objective, None, config.schedule, config.particles, None)
    state = trainer.start(key)
    began = time.perf_counter()
    chunk = trainer.chunk.lower(key, state, trainer.fixed, 0, 1).compile()
    compile_seconds = time.perf_counter() - began
    times = []
    for i in range(config.repeats + 2):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(chunk(key, state, trainer.fixed, i * config.steps, config.steps))
        times.append((time.perf_counter() - began) / config.steps)
    times = times[2:]
    return {
        **asdict(config),
        "step_seconds_median": statistics.median(times),
        "step_seconds_min": min(times),
        "step_seconds_max": max(times),
        "compile_seconds": compile_seconds,
        "xla_temp_bytes": _temp_bytes(key, trainer, objective, state, config),
        "parameter_bytes": sum(x.nbytes for x in jax.tree.leaves(trainer.params)),
        **provenance(config.seed),
    }


def _temp_bytes(key, trainer: Trainer, objective, state, config: StepBench) -> int | None:
    def grads(key, params, fixed, population):
        sampler = eqx.combine(params, fixed, trainer.static)
        result = gradient(key, sampler, objective, config.particles, schedule=config.schedule, population=population)
        return result.grads, result.finite, result.info, result.population

    compiled = jax.jit(grads).lower(key, state.params, trainer.fixed, state.population).compile()
    memory = compiled.memory_analysis()
    return None if memory is None else int(memory.temp_size_in_bytes)
