"""Weighted means, spreads and quantiles of every scalar of a posterior, as a table that prints and
a dict that serialises. It judges nothing: diagnoses are `posterior`'s.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from nestedvi.inference.problem import element_names, named_sites

__all__ = ["QUANTILES", "Row", "Summary", "scalar_elements", "summarise", "weighted_mean"]

QUANTILES = {"5%": 0.05, "50%": 0.5, "95%": 0.95}
COLUMNS = ("mean", "error", "sd", *QUANTILES)


class Row(NamedTuple):
    """One scalar: its name and weighted statistics by column."""

    name: str
    values: dict[str, float]


class Summary(NamedTuple):
    """Statistics of every scalar element, and what the posterior says of itself."""

    rows: tuple[Row, ...]
    log_Z: float
    log_Z_stderr: float
    ess: float
    num_particles: int
    khat: float
    diagnosis: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings; `sites` maps an element's name to its statistics."""
        content = self._asdict()
        rows = content.pop("rows")
        return {
            **content,
            "diagnosis": list(self.diagnosis),
            "sites": {row.name: dict(row.values) for row in rows},
        }

    def facts(self) -> dict[str, str]:
        """What is known beside the sites, in words."""
        share = 100 * self.ess / self.num_particles
        return {
            "log Z": f"{self.log_Z:.4f} ± {self.log_Z_stderr:.4f}",
            "ESS": f"{self.ess:.0f} of {self.num_particles} particles ({share:.0f} %)",
            "k̂": "none (too few unequal weights)" if np.isnan(self.khat) else f"{self.khat:.2f}",
            "diagnosis": " ".join(self.diagnosis) or "nothing found wrong",
        }

    def __str__(self) -> str:
        width = max([4, *(len(row.name) for row in self.rows)])
        lines = [" " * width + "".join(f"{column:>11}" for column in COLUMNS)]
        lines += [
            f"{row.name:<{width}}" + "".join(f"{row.values[c]:>11.4g}" for c in COLUMNS)
            for row in self.rows
        ]
        return "\n".join([*lines, "", *(f"{name}: {fact}" for name, fact in self.facts().items())])


def scalar_elements(samples: PyTree) -> Iterator[tuple[str, np.ndarray]]:
    """Every scalar element of the particles with its name: one value a particle."""
    for site, x in named_sites(samples).items():
        flat = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        yield from zip(element_names(site, np.shape(x)[1:]), flat.T, strict=True)


def weighted_mean(
    x: np.ndarray, w_bar: np.ndarray, family: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Σ w̄ x over the first axis and its standard error, by the delta method for a ratio of means
    over independent families, numbered from zero.

    Where families are descendants of one draw this is the estimator of Chan and Lai (2013) for the
    variance of SMC. One family has no standard error.
    """
    mean = np.tensordot(w_bar, x, axes=1)
    num = int(family.max()) + 1
    if num < 2:
        return mean, np.full(np.shape(mean), np.nan)
    off = w_bar.reshape(-1, *(1,) * (x.ndim - 1)) * (x - mean)
    sums = np.zeros((num, *off.shape[1:]))
    np.add.at(sums, family, off)
    return mean, np.sqrt(num * np.var(sums, axis=0, ddof=1))


def summarise(samples: PyTree, w_bar: np.ndarray, family: np.ndarray) -> tuple[Row, ...]:
    """One row an element, from particles with normalised weights; `error` is the mean's standard
    error.
    """
    return tuple(Row(name, _statistics(x, w_bar, family)) for name, x in scalar_elements(samples))


def _statistics(x: np.ndarray, w_bar: np.ndarray, family: np.ndarray) -> dict[str, float]:
    mean, error = (float(value) for value in weighted_mean(x, w_bar, family))
    order = np.argsort(x)
    # Each particle stands for the middle of its own piece of the cumulative weight.
    middle = np.cumsum(w_bar[order]) - w_bar[order] / 2
    quantiles = np.interp(list(QUANTILES.values()), middle, x[order])
    spread = float(np.sqrt(w_bar @ (x - mean) ** 2))
    return {
        "mean": mean,
        "error": error,
        "sd": spread,
        **dict(zip(QUANTILES, map(float, quantiles), strict=True)),
    }
