"""Errors and warnings that say what was expected, what came, and what to do. They are raised
elsewhere.
"""

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckpointError",
    "DataError",
    "DensityError",
    "LostProcessError",
    "MissingScoreError",
    "ModelCallError",
    "ModelError",
    "NestedviWarning",
    "NonFiniteGradientError",
    "UnknownNameError",
]


class NestedviWarning(UserWarning):
    """Something was repaired or cannot be trusted; the message says which.

    Example:
        ```python
        import warnings

        warnings.simplefilter("error", nvi.NestedviWarning)  # a diagnosis then stops the program
        warnings.simplefilter("default", nvi.NestedviWarning)
        ```
    """


class DensityError(FloatingPointError):
    """A density or kernel returned NaN, or left every particle without weight."""


class NonFiniteGradientError(FloatingPointError):
    """Many gradients in a row were not finite; the message names the level."""


class MissingScoreError(TypeError):
    """A kernel whose draws carry no gradient offers no score term either."""


class CheckpointError(RuntimeError):
    """A checkpoint belongs to another configuration, or none on disk is readable."""


class LostProcessError(RuntimeError):
    """Another process of a program that runs in several ended or cannot be reached."""


class DataError(OSError):
    """A data file is missing, damaged or cannot be fetched; the message says which and what to
    do.
    """


class ModelError(ValueError):
    """A NumPyro model that cannot be run or sampled; the message names the site and says what to
    do.
    """


class ModelCallError(ModelError):
    """What was given as a NumPyro model fails when it is called: wrong arguments, an error of its
    own, or no model at all.
    """


class UnknownNameError(ValueError):
    """A name that is not in a table; the message gives the nearest one."""

    def __init__(self, kind: str, name: object, known: Iterable[str]):
        names = sorted(known)
        near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(names)}.")
