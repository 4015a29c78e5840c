"""Weak scaling over devices, and what a level costs: its operations, its bytes, what it exchanges.

Run as: python benchmarks/devices.py --out results/devices. One and two virtual devices, each with a
core of its own, do the same work a device: `sample`'s batches, restarts, and level-parallel
training of residual networks, 32 levels a device. Every round is a process of its own that is
pinned to its cores. Beside them stand two processes at the same time that know nothing of each
other, one device each: what the two cores can do at most, since they share memory. It writes
weak-scaling.json and, from the measured level, on-paper.json.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CASES = ("batches", "restarts", "levels")
LEVELS_PER_DEVICE = 32


def measure(case: str, num_devices: int, size: float, seconds: float) -> dict[str, float]:
    """Runs in a process of its own. Work per second, in batches, restarts × steps, or levels ×
    steps.
    """
    import jax

    assert jax.device_count() == num_devices
    work, units = {"batches": batches, "restarts": restarts, "levels": levels}[case](
        num_devices, size
    )
    return {"rate": units / _best_seconds(work, seconds), "units": units}


def _best_seconds(work: Callable[[], Any], seconds: float) -> float:
    """The quickest of several calls, after one that compiles: others on the machine only slow."""
    import time

    import jax

    jax.block_until_ready(work())
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        began = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - began)
    return min(times)


def build(key: Any, num_levels: int, dim: int, hidden: int) -> Any:
    """An annealed sampler with residual Gaussian kernels at every level."""
    import jax
    import jax.numpy as jnp

    import nestedvi as nvi

    initial = nvi.DiagonalNormal(jnp.zeros(dim), 3.0)
    path = nvi.Annealing(
        initial, nvi.DiagonalNormal(jnp.ones(dim), 0.5), nvi.LinearSchedule(num_levels)
    )

    def pair(k: Any) -> Any:
        forward, reverse = jax.random.split(k)
        return nvi.Transition(
            nvi.ResidualGaussian(dim, hidden, key=forward),
            nvi.ResidualGaussian(dim, hidden, key=reverse),
        )

    kernels = nvi.Stacked(nvi.stack(key, pair, num_levels - 1))
    return nvi.NestedSampler(initial, path, kernels, nvi.Resampling("systematic", "always"))


def batches(num_devices: int, size: float) -> tuple[Callable[[], Any], int]:
    """Ten independent batches a device, as `sample` runs those of a trained row."""
    import jax

    import nestedvi as nvi
    from nestedvi.inference.by_method import run_batches

    sampler = build(jax.random.key(0), 8, dim=16, hidden=int(64 * size))
    mesh = nvi.devices.mesh(batches=num_devices)
    keys = jax.random.split(jax.random.key(1), 10 * num_devices)
    return lambda: run_batches(keys, sampler, 1000, mesh=mesh), 10 * num_devices


def restarts(num_devices: int, size: float) -> tuple[Callable[[], Any], int]:
    """Four restarts a device, eight levels each; ten steps a call."""
    import jax

    import nestedvi as nvi

    num = 4 * num_devices
    sampler = nvi.stack(
        jax.random.key(0), lambda k: build(k, 8, dim=16, hidden=int(128 * size)), num
    )
    mesh = nvi.devices.mesh(restarts=num_devices)
    return _steps(sampler, "sequential", num, mesh, 10), 10 * num


def levels(num_devices: int, size: float) -> tuple[Callable[[], Any], int]:
    """32 levels a device, the first one among them; twenty steps a call, where `fit` makes up to
    512.
    """
    import jax

    import nestedvi as nvi

    num = LEVELS_PER_DEVICE * num_devices
    sampler = build(jax.random.key(0), num, dim=32, hidden=int(512 * size))
    mesh = nvi.devices.mesh(levels=num_devices)
    return _steps(sampler, "level-parallel", None, mesh, 20), 20 * num


def _steps(
    sampler: Any, order: str, num_restarts: int | None, mesh: Any, num_steps: int
) -> Callable[[], Any]:
    import jax

    import nestedvi as nvi
    from nestedvi.train.fit import Trainer

    key = jax.random.key(2)
    trainer = Trainer(sampler, nvi.Objective(), None, order, 64, num_restarts)
    trainer.use(mesh)
    state, inputs, there = trainer.place(key, trainer.start(key))

    def work() -> Any:
        with trainer.on_devices():
            return trainer.chunk(there, state, inputs, 0, num_steps)

    return work


def cost_of_a_level(size: float) -> dict[str, float]:
    """What XLA counts for one level more, and what the arrays of a level hold."""
    import equinox as eqx
    import jax
    import numpy as np

    import nestedvi as nvi
    from nestedvi.train.orders import gradient, initial_population

    num_particles, hidden, dim = 64, int(512 * size), 32
    key, counts = jax.random.key(0), {}
    for num_levels in (8, 16):
        sampler = build(key, num_levels, dim=dim, hidden=hidden)
        population = initial_population(key, sampler, "level-parallel", num_particles)
        step = eqx.filter_jit(gradient)
        compiled = step.lower(
            key,
            sampler,
            nvi.Objective(),
            num_particles,
            order="level-parallel",
            population=population,
        ).compile()
        counts[num_levels] = compiled.compiled.cost_analysis()

    def a_level(name: str) -> float:
        return (counts[16][name] - counts[8][name]) / 8

    def size_of(tree: Any) -> int:
        return sum(x.nbytes for x in map(np.asarray, jax.tree.leaves(tree)))

    arrays = eqx.filter(sampler.transitions, eqx.is_array)
    return {
        "num_particles": num_particles,
        "dim": dim,
        "hidden": hidden,
        "operations": a_level("flops"),
        "bytes_accessed": a_level("bytes accessed"),
        "parameter_bytes": size_of(arrays) / (num_levels - 1),
        "particle_bytes": size_of(population.particles) / (num_levels - 1),
    }


def run_pinned(arguments: list[str], *groups: list[int]) -> list[dict[str, Any]]:
    """This file in other processes at the same time, one for each group of cores, with as many
    virtual devices as cores.
    """
    processes = []
    for cores in groups:
        flags = f"--xla_force_host_platform_device_count={len(cores)}"
        process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            preexec_fn=lambda cores=cores: os.sched_setaffinity(0, cores),
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
    printed = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("A measurement failed; its message is above.")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def weak_scaling(options: argparse.Namespace, cores: list[int]) -> list[dict[str, Any]]:
    """Rounds alternate between one device, two, and two processes; the quickest of each counts."""
    rows = []
    first, second = cores
    kinds = {"1": [[first]], "2": [cores], "apart": [[first], [second]]}
    for case in CASES:
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(options.rounds):
            for kind, groups in kinds.items():
                measured = run_pinned(["--measure", case, *_passed_on(options)], *groups)
                rates[kind].append(sum(one["rate"] for one in measured))
        best = {kind: max(several) for kind, several in rates.items()}
        row: dict[str, Any] = {"case": case}
        row |= {f"rate_{kind}": rate for kind, rate in best.items()}
        row |= {"ratio": best["2"] / best["1"], "ratio_apart": best["apart"] / best["1"]}
        rows.append(row | {f"rates_{kind}": several for kind, several in rates.items()})
        print(
            f"{case:10} {best['1']:10.2f} a second on one device, {best['2']:10.2f} on two:"
            f" {row['ratio']:.2f}; two processes apart {row['ratio_apart']:.2f}",
            flush=True,
        )
    return rows


def _passed_on(options: argparse.Namespace) -> list[str]:
    return ["--size", str(options.size), "--seconds", str(options.seconds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="results/devices")
    parser.add_argument("--rounds", type=int, default=2, help="processes for each measurement")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured in each process")
    parser.add_argument("--size", type=float, default=1.0, help="factor of the networks' width")
    parser.add_argument("--measure", choices=(*CASES, "level"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure == "level":
        print(json.dumps(cost_of_a_level(options.size)))
        return
    cores = sorted(os.sched_getaffinity(0))
    if options.measure:
        print(json.dumps(measure(options.measure, len(cores), options.size, options.seconds)))
        return
    if len(cores) < 2:
        sys.exit("Two devices with a core each need two cores.")
    # On a machine with more, two cores that are apart do not share the first's hyperthread.
    cores = [cores[0], cores[len(cores) // 2]]
    (level,) = run_pinned(["--measure", "level", *_passed_on(options)], cores[:1])
    rows = weak_scaling(options, cores)
    write(Path(options.out), rows, level, options)


def write(out: Path, rows: list[dict[str, Any]], level: dict[str, Any], options: Any) -> None:
    """After all measurements: this process looks at its devices only now."""
    from nestedvi.storage.files import output_folder, provenance, write_json
    from on_paper import on_paper

    folder = output_folder(out)
    settings = {"rounds": options.rounds, "seconds": options.seconds, "size": options.size}
    write_json(
        folder / "weak-scaling.json",
        {"rows": rows, "level": level, "settings": settings, **provenance(0)},
    )
    write_json(folder / "on-paper.json", {**on_paper(level), **provenance(0)})


if __name__ == "__main__":
    main()
