"""A user's model from a file to a posterior on disk: what `nestedvi sample` assembles from the
library's parts.
"""

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import jax
import numpy as np

from nestedvi.errors import DataError, ModelError, UnknownNameError
from nestedvi.inference.posterior import Posterior
from nestedvi.inference.sample import sample
from nestedvi.plot.figures import save_figure
from nestedvi.storage.files import output_folder, provenance, write_atomic, write_json
from nestedvi.targets import TARGETS, get_target

__all__ = ["OwnModelConfig", "OwnModelRun", "load_data", "load_model", "run_own_model"]


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
    """Samples and writes `posterior.json`, `posterior.png` and, where ArviZ is installed,
    `posterior.nc`.

    A model or data that cannot be read fail before the folder is made.
    """
    model, dim, truth = _find(config.model, config.dim)
    kwargs = {} if config.data is None else load_data(config.data)
    _check_takes(model, kwargs, config)
    if dim is not None and kwargs:
        # A log density takes one particle; its data are bound by name as a model's are.
        model, kwargs = partial(model, **kwargs), {}
    folder = output_folder(out)
    names = ("method", "num_levels", "num_particles", "num_steps")
    options = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    posterior = sample(
        jax.random.key(config.seed),
        model,
        model_kwargs=kwargs,
        dim=dim,
        progress=progress,
        **options,
    )
    content = {
        **posterior.summary().to_dict(),
        "log_Z_true": truth,
        "model": Path(config.model).name,
        **provenance(config.seed),
    }
    write_json(folder / "posterior.json", content)
    save_figure(posterior.plot(), folder / "posterior.png")
    written = ["posterior.json", "posterior.png"]
    if _has_arviz():
        write_atomic(
            folder / "posterior.nc", lambda path: posterior.to_arviz().to_netcdf(str(path))
        )
        written.append("posterior.nc")
    return OwnModelRun(posterior, content, written)


def _has_arviz() -> bool:
    try:
        import arviz  # noqa: F401
    except ImportError:
        return False
    return True


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


def load_model(where: str) -> Any:
    """The object `name` of the file in `path/to/file.py:name`."""
    path, _, name = where.rpartition(":")
    if not path or not name:
        raise ValueError(f"Say which model of the file: path/to/file.py:name; got {where!r}.")
    file = Path(path)
    if not file.is_file():
        raise DataError(f"There is no file {path}; give a model as path/to/file.py:name.")
    spec = importlib.util.spec_from_file_location(f"_nestedvi_model_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # A model's file may import its neighbours, as it would when it is run by itself.
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        lines = str(error).strip().splitlines() or ["no message"]
        raise ModelError(
            f"{path} failed when it was imported: {type(error).__name__}: {lines[0]}"
        ) from error
    finally:
        sys.path.pop(0)
    if not hasattr(module, name):
        known = [
            key
            for key, value in vars(module).items()
            if callable(value) and not key.startswith("_")
        ]
        raise UnknownNameError(f"name in {path}", name, known)
    return getattr(module, name)


def load_data(file: str) -> dict[str, np.ndarray]:
    """Arrays by name: those of an .npz file, or the columns of a .csv file with a header."""
    path = Path(file)
    if not path.is_file():
        raise DataError(f"There is no data file {file}.")
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise DataError(
                f"Cannot read {file} as an .npz file of plain arrays: {error}"
            ) from error
    if path.suffix == ".csv":
        return _load_csv(path)
    raise DataError(f"Data come as .npz or .csv; got {file}.")


def _load_csv(path: Path) -> dict[str, np.ndarray]:
    try:
        header, *lines = [
            line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
        ] or [""]
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text file: {error.reason}.") from error
    names = [name.strip().strip('"') for name in header.split(",")]
    if not all(name.isidentifier() for name in names) or len(set(names)) < len(names):
        raise DataError(
            f"The first line of {path} must name its columns, each once, as Python names; got"
            f" {header[:60]!r}."
        )
    rows = [line.split(",") for line in lines]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise DataError(
                f"Row {number} of {path} has {len(row)} entries; its header names {len(names)}"
                " columns."
            )
    if not rows:
        raise DataError(f"{path} has a header and no rows.")
    return {name: _column(path, name, [row[i] for row in rows]) for i, name in enumerate(names)}


def _column(path: Path, name: str, entries: list[str]) -> np.ndarray:
    """Whole numbers stay whole (they index), anything else must be a number."""
    for kind in (int, float):
        try:
            return np.array([kind(entry) for entry in entries])
        except ValueError:
            continue
    odd = next(entry for entry in entries if not _is_number(entry))
    raise DataError(f"Column {name!r} of {path} must hold numbers; got {odd.strip()!r}.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_takes(model: Any, kwargs: Mapping[str, Any], config: OwnModelConfig) -> None:
    """Data that the model has no argument for is a mistake in the file or in the model; neither is
    passed over.
    """
    if not kwargs:
        return
    if not callable(model):
        raise DataError(f"{config.model} takes no data: leave out --data.")
    parameters = inspect.signature(model).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    taken = [
        parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    extra = [name for name in kwargs if name not in taken]
    if extra:
        raise DataError(
            f"{config.data} holds {', '.join(map(repr, extra))}, which {config.model} does not"
            f" take; its arguments are {', '.join(map(repr, taken)) or 'none'}."
        )
