"""A case of the campaign: what `sample` is given, and what it should find."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Case", "Means", "Spec", "log_integral"]

# By site (`z` for a vector): true means and standard deviations; NaN where they are not known or
# do not exist.
Means = Mapping[str, tuple[Any, Any]]


class Case(NamedTuple):
    """A model or log density with the options that say its data or shape, and the truth.

    `log_Z` is None where there is none: an improper posterior, which must be refused, or named by
    the diagnosis.
    `must_say` is a word that the diagnosis has to hold although the answer is right.
    """

    model: Any
    options: Mapping[str, Any]
    log_Z: float | None
    means: Means = MappingProxyType({})
    must_say: str = ""


class Spec(NamedTuple):
    """How to build a case, what it is, and where its log Z is from."""

    build: Callable[[], Case]
    about: str
    source: str = "closed form"


def log_integral(log_values: np.ndarray, *steps: float) -> float:
    """log of the trapezoidal sum over an even grid, whose ends count for nothing."""
    top = np.max(log_values)
    return float(top + np.log(np.sum(np.exp(log_values - top))) + np.sum(np.log(steps)))
