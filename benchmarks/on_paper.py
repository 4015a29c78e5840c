"""How level-parallel training would scale on many GPUs, calculated from the measured operations and
bytes of a level.

`benchmarks/devices.py` measures and calls this; python benchmarks/on_paper.py FOLDER calculates
again from FOLDER/weak-scaling.json and prints the tables of docs/devices.md. Nothing here is
measured.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple


class Machine(NamedTuple):
    """A cluster of nodes with eight GPUs, as its makers state it; the share of the operations that
    small products reach is an assumption.
    """

    operations: float = 67e12
    share: float = 0.2
    memory: float = 80e9
    link_in_node: float = 450e9
    link_between_nodes: float = 50e9
    latency_in_node: float = 8e-6
    latency_between_nodes: float = 20e-6
    launch: float = 200e-6
    gpus_in_node: int = 8


MACHINE = Machine()
# Of each parameter: itself, its gradient, and two moments of Adam.
COPIES = 4
# As many all-reduces and all-gathers has the compiled level-parallel step with particles laid out.
SUMS_OVER_PARTICLES = 19


def step(
    level: dict[str, float],
    num_gpus: int,
    num_levels: int,
    num_particles: int,
    width: float = 1,
    over_particles: int = 1,
) -> dict[str, float]:
    """Seconds and bytes of one training step on `num_gpus`, of which groups of `over_particles`
    share the particles of the same levels. `width` multiplies the measured networks' hidden width,
    in which operations and parameters are linear.
    """
    m, groups = MACHINE, num_gpus // over_particles
    of_a_level = width * level["operations"] * num_particles / level["num_particles"]
    of_a_level /= m.operations * m.share
    rows = math.ceil((num_levels - 1) / groups)
    compute = (rows + 1) * of_a_level / over_particles + m.launch
    exchange = reduce = 0.0
    if groups > 1:
        apart = num_gpus > m.gpus_in_node
        link = m.link_between_nodes if apart else m.link_in_node
        latency = m.latency_between_nodes if apart else m.latency_in_node
        bytes_up = level["particle_bytes"] / level["num_particles"] * num_particles
        exchange = latency + bytes_up / over_particles / link
        # Four numbers a level; a tree up and down.
        reduce = 2 * math.ceil(math.log2(groups)) * latency + 2 * 4 * 4 * num_levels / link
    if over_particles > 1:
        # Gradients of the group's levels, in its own node, and sums and weights of particles.
        gradients = 2 * width * level["parameter_bytes"] * rows / m.link_in_node
        reduce += gradients + SUMS_OVER_PARTICLES * m.latency_in_node
    seconds = compute + exchange + reduce
    return {
        "gpus": num_gpus,
        "along_particles": over_particles,
        "levels": num_levels,
        "particles": num_particles,
        "width": width,
        "rows_per_gpu": rows,
        "compute_ms": 1e3 * compute,
        "exchange_ms": 1e3 * exchange,
        "all_reduce_ms": 1e3 * reduce,
        "step_ms": 1e3 * seconds,
        "levels_per_second": num_levels / seconds,
        "parameter_gb_per_gpu": COPIES * width * level["parameter_bytes"] * rows / 1e9,
        "useful_share": num_levels * of_a_level / num_gpus / seconds,
    }


def most_levels(level: dict[str, float], num_gpus: int, width: float) -> int:
    """Levels whose parameters, gradients and optimiser state fill half of the memory."""
    of_a_level = COPIES * width * level["parameter_bytes"]
    return 1 + num_gpus * int(MACHINE.memory / 2 / of_a_level)


def on_paper(level: dict[str, float]) -> dict[str, Any]:
    """Two networks (the measured one, and one a hundred times as wide) on 1, 8, 64 and 512 GPUs."""
    weak, strong, memory, mixed = [], [], [], []
    for width in (1, 100):
        for num in (1, 8, 64, 512):
            weak.append(step(level, num, 64 * num, 1024, width))
            strong.append(step(level, num, 1024, 1024, width))
            memory.append({"gpus": num, "width": width, "levels": most_levels(level, num, width)})
        mixed += [step(level, 64, 64, 65_536, width, over_particles=parts) for parts in (1, 2, 8)]
        mixed.append(step(level, 512, 64, 65_536, width, over_particles=8))
    return {
        "machine": MACHINE._asdict(),
        "level": level,
        "64_levels_a_gpu": weak,
        "1024_levels": strong,
        "64_levels_and_particles": mixed,
        "most_levels": memory,
    }


def table(rows: list[dict[str, float]]) -> str:
    """A table for docs/devices.md."""
    head = (
        "| network | GPUs | along particles | K | levels a GPU | compute | exchange | all-reduce |"
        " useful share |"
    )
    lines = [head, "|---" * 9 + "|"]
    for r in rows:
        times = (f"{r[name]:.3f} ms" for name in ("compute_ms", "exchange_ms", "all_reduce_ms"))
        shape = f"| ×{r['width']:g} | {r['gpus']} | {r['along_particles']} | {r['levels']} |"
        shape = f"{shape} {r['rows_per_gpu']} | {' | '.join(times)} |"
        lines.append(f"{shape} {100 * r['useful_share']:.0f} % |")
    return "\n".join(lines)


if __name__ == "__main__":
    measured = json.loads(Path(sys.argv[1], "weak-scaling.json").read_text(encoding="utf-8"))
    result = on_paper(measured["level"])
    for name in ("64_levels_a_gpu", "1024_levels", "64_levels_and_particles"):
        print(f"{table(result[name])}\n")
    for row in result["most_levels"]:
        print(f"×{row['width']:g}, {row['gpus']} GPUs: {row['levels']} levels")
