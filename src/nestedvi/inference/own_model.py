"""A user's model from a file to a posterior on disk: what `nestedvi sample` assembles from the
library's parts. Files are read in `model_file` and `data_file`, and written in `report`; it refuses
to know their formats.
"""

import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from nestedvi.distributed import is_first, num_processes
from nestedvi.errors import DataError, UnknownNameError
from nestedvi.inference.data_file import check_takes, load_data
from nestedvi.inference.model_file import load_model
from nestedvi.inference.posterior import Posterior
from nestedvi.inference.report import posterior_content, write_posterior
from nestedvi.inference.sample import sample
from nestedvi.storage.files import output_folder, provenance
from nestedvi.storage.locks import locked
from nestedvi.targets import TARGETS, get_target

__all__ = ["OwnModelConfig", "OwnModelRun", "run_own_model"]


@dataclass(frozen=True)
class OwnModelConfig:
    """What to sample (`file.py:name` or a built-in target), its data, and the budget; None keeps
    the default of `sample`.
    """

    model: str
    data: str | None = None
    dim: int | None = None
    method: str | None = None
    num_levels: int | None = None
    num_particles: int | None = None
    num_steps: int | None = None
    seed: int = 0


class OwnModelRun(NamedTuple):
    """The posterior, the content of posterior.json, and the names of the files that were
    written.
    """

    posterior: Posterior
    content: dict[str, Any]
    written: list[str]


def run_own_model(config: OwnModelConfig, out: str | Path, *, progress: Any = False) -> OwnModelRun:
    """Samples and writes `posterior.json`, `posterior.png`, `report.html` and, where ArviZ is
    installed, `posterior.nc`.

    A model or data that cannot be read fail before the folder is made. What is done is kept in a
    folder `checkpoint` until all is written, and the same call goes on from there.
    """
    model, dim, truth = _find(config.model, config.dim)
    kwargs = {}
    if config.data is not None:
        kwargs = load_data(config.data)
        check_takes(
            model,
            kwargs,
            model_name=config.model,
            file=config.data,
            # A log density's first argument is the particle.
            model_takes_particle=dim is not None,
        )
    if dim is not None and kwargs:
        # A log density takes one particle; its data are bound by name as a model's are.
        model, kwargs = partial(model, **kwargs), {}
    folder = output_folder(out)
    # Several processes would not come to the same stages together.
    checkpoint = folder / "checkpoint"
    names = ("method", "num_levels", "num_particles", "num_steps")
    options = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    lock = locked(folder / ".lock", f"The output folder {folder}") if is_first() else nullcontext()
    with lock:
        posterior = sample(
            jax.random.key(config.seed),
            model,
            model_kwargs=kwargs,
            dim=dim,
            progress=progress,
            checkpoint=checkpoint if num_processes() == 1 else None,
            **options,
        )
        content = {
            **posterior_content(posterior),
            "log_Z_true": truth,
            "model": Path(config.model).name,
            **provenance(config.seed),
        }
        written = write_posterior(folder, posterior, content)
        # All is written: what it was resumed from is no longer of use.
        if is_first():
            shutil.rmtree(checkpoint, ignore_errors=True)
    return OwnModelRun(posterior, content, written)


def _find(name: str, dim: int | None) -> tuple[Any, int | None, float | None]:
    """The model, the size of its particle where it is a log density, and log Z where it is
    known.
    """
    if ":" in name or name.endswith(".py") or "/" in name:
        return load_model(name), dim, None
    if name not in TARGETS:
        raise UnknownNameError("target (or give a model as path/to/file.py:name)", name, TARGETS)
    target = get_target(name)
    if dim not in (None, target.dim):
        raise ValueError(
            f"The target {name} has dim = {target.dim}; got --dim {dim}. Leave it out."
        )
    try:
        return target.build(), target.dim, target.log_Z
    except ImportError as error:
        raise DataError(str(error)) from error
