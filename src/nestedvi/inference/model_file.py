"""A user's model from a Python file, `path/to/file.py:name`. It is only loaded: what kind of model
it is, `problem` finds out.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from nestedvi.errors import DataError, ModelError, UnknownNameError

__all__ = ["load_model"]


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
