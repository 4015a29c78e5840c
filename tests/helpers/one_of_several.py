"""One process of a program that runs in several: `python -m tests.helpers.one_of_several TASK
FOLDER`. The first one writes what the test compares, everything else goes to standard error.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import optax

import nestedvi as nvi
from nestedvi import distributed
from tests.helpers.small_training import OBJECTIVE, arrays, build, stacked

LEVEL_PARALLEL = {"order": "level-parallel", "num_particles": 8, "optimiser": optax.adam(1e-2)}


def train(folder, num_steps, devices=None, **options):
    options = {**LEVEL_PARALLEL, **options}
    sampler = options.pop("sampler", None) or build(jax.random.key(1))
    fit = nvi.fit(
        jax.random.key(5),
        sampler,
        OBJECTIVE,
        num_steps=num_steps,
        checkpoint=folder,
        devices=devices,
        **options,
    )
    return arrays((fit.sampler, *fit.record))


def some(folder):
    """Half of a training. Two devices along levels, since the sampler has two levels after the
    first; more share particles.
    """
    mesh = nvi.devices.mesh(levels=2, particles=jax.device_count() // 2)
    keep(folder, train(folder / "checkpoint", 3, mesh))


def every(folder):
    """What several processes give together and one gives alone."""
    keep(folder, everything(folder / "checkpoint", jax.devices()))


def everything(folder, devices=None):
    sampler = build(jax.random.key(1))
    options = {"num_particles": 8, "num_batches": 6, "devices": devices}
    evaluation = nvi.evaluate(jax.random.key(5), sampler, **options)
    restarts = {"order": "sequential", "sampler": stacked(4), "restarts": 4}
    return [
        np.array(evaluation.log_Z),
        *train(folder, 3, devices, **restarts),
        *train(None, 3, devices, order="sequential"),
    ]


def keep(folder, values):
    if distributed.is_first():
        np.savez(folder / "results.npz", *values)


def endless(folder, num_steps=1_000_000):
    """A training that another process ends."""
    train(folder / "checkpoint", num_steps, jax.device_count(), checkpoint_seconds=0.5)


if __name__ == "__main__":
    distributed.start()
    {"some": some, "every": every, "endless": endless}[sys.argv[1]](Path(sys.argv[2]))
