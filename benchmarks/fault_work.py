"""What the processes of `faults.py` do until they are killed: small trainings, calls of `sample`,
cells of an experiment. Each has a folder to go on from; what counts is a digest of its result.
"""

import hashlib
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax

import nestedvi as nvi
import nestedvi.train.loop as loop_module
from nestedvi.paper.annealing.cells import table_cells
from nestedvi.paper.annealing.config import AnnealingConfig, quick_config
from nestedvi.paper.annealing.train_cell import run_cell

__all__ = ["WORK", "run_child"]

DATA = np.array([0.3, -0.2, 0.9])


def digest(tree: Any) -> str:
    """Of every array's type, shape and bytes."""
    total = hashlib.sha256()
    for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array_like)):
        array = np.asarray(x)
        total.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()


def train(folder: Path) -> Any:
    """`fit` of three levels in one dimension, saved after every chunk."""

    def kernel(slope):
        return nvi.kernels.GaussianKernel(slope, jnp.zeros(1), jnp.zeros(1))

    def transition(key):
        return nvi.Transition(*map(kernel, jax.random.uniform(key, (2, 1), minval=0.5)))

    initial = nvi.DiagonalNormal(jnp.zeros(1), 2.0)
    target = nvi.densities.Scaled(nvi.DiagonalNormal(jnp.ones(1), 0.5), 1.3)
    links = nvi.Stacked(nvi.stack(jax.random.key(1), transition, 2))
    path = nvi.Annealing(initial, target, nvi.LearnedSchedule(3))
    sampler = nvi.NestedSampler(initial, path, links, nvi.Resampling("systematic", "always"))
    trained = nvi.fit(
        jax.random.key(0),
        sampler,
        nvi.Objective(learn=("forward", "reverse", "path")),
        num_steps=2000,
        num_particles=8,
        optimiser=optax.adam(1e-2),
        checkpoint=folder,
        checkpoint_seconds=0.0,
    )
    return trained.sampler, trained.record


def model(x):
    loc = numpyro.sample("loc", dist.Normal(0, 1))
    numpyro.sample("x", dist.Normal(loc, 1.0), obs=x)


def sampling(**options: Any) -> Callable[[Path], Any]:
    """A call of `sample` with few particles."""

    def work(folder: Path) -> Any:
        with warnings.catch_warnings():
            # So few particles are warned of; what is said of files is kept.
            warnings.filterwarnings("ignore", r"(?s)(?!.*(damaged|kept|write)).*")
            posterior = nvi.sample(
                jax.random.key(0),
                model,
                model_args=(DATA,),
                num_particles=200,
                checkpoint=folder,
                **options,
            )
        return posterior.samples, posterior.log_weights, posterior.log_Z, posterior.log_Z_stderr

    return work


class _Quiet:
    """A cell's reporter that shows nothing."""

    def __enter__(self) -> "_Quiet":
        return self

    def __exit__(self, *_: Any) -> None: ...

    def start(self, total: int, done: int) -> None: ...

    def update(self, done: int, **_: Any) -> None: ...

    def stop(self) -> None: ...


def cells(folder: Path) -> Any:
    """A cell of `reproduce annealing --quick`, saved after every chunk."""
    config = quick_config(
        AnnealingConfig(methods=("avo",), levels=(2, 3), iterations=300, restarts=1, beyond=False)
    )
    folder.mkdir(parents=True, exist_ok=True)
    results = [run_cell(cell, folder, _Quiet()) for cell in table_cells(config)]
    # Not the whole row: it holds times too.
    return [
        ([np.asarray(x) for n, x in row.items() if n.startswith(("log_Z", "ess"))], arrays)
        for row, arrays in results
    ]


WORK: dict[str, Callable[[Path], Any]] = {
    "fit": train,
    "sample smc": sampling(method="smc"),
    "sample auto": sampling(method="auto"),
    "sample frozen": sampling(method="auto", num_levels=3),
    "sample trained": sampling(method="avo", num_levels=3, num_steps=400),
    "reproduce": cells,
}


def run_child(
    name: str,
    folder: Path,
    result: Path,
    said: Path,
    cache: Path,
    most_bytes: int | None = None,
) -> None:
    """The whole life of a process: works, writes the digest to `result` and what it had to say to
    `said`, and ends. With `most_bytes` no file may grow larger than that, as on a full disk.
    """
    handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    settings: Iterable[tuple[str, Any]] = (
        ("jax_compilation_cache_dir", str(cache)),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
        ("jax_persistent_cache_min_entry_size_bytes", -1),
    )
    for setting, value in settings:
        jax.config.update(setting, value)
    # Every chunk is saved, whatever the work asks for: more writes to be killed in.
    loop_module._Saver.is_due = lambda self, since: True  # type: ignore[method-assign]
    if most_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    code = 0
    try:
        outcome = digest(WORK[name](folder))
        result.write_text(outcome)
    except BaseException as error:
        print(f"{type(error).__module__}.{type(error).__name__}: {error}", file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
