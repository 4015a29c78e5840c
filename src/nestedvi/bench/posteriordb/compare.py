"""An answer beside reference draws: how far means are off, in the reference's standard deviations
and in standard errors, and how the standard deviations compare. It judges nothing.
"""

from typing import Any

import numpy as np

from nestedvi.bench.posteriordb.data import Reference
from nestedvi.inference.posterior import Posterior
from nestedvi.inference.problem import named_sites

__all__ = ["compare", "stan_names"]


def stan_names(site: str, shape: tuple[int, ...]) -> list[str]:
    """Stan's names of a site's elements: `beta[1]` is the first; a scalar is its site."""
    return [
        f"{site}[{','.join(str(i + 1) for i in index)}]" if index else site
        for index in np.ndindex(*shape)
    ]


def compare(
    posterior: Posterior, reference: Reference, infinite_variance: tuple[str, ...] = ()
) -> dict[str, Any]:
    """For every parameter both means and standard deviations, and the worst of each comparison with
    its parameter. The ratio of standard deviations passes over those in `infinite_variance`.

    The error of a mean counts in reference standard deviations and in standard errors of the
    difference: the answer's own, and that of so many reference draws.
    """
    estimates = _by_stan_name(posterior)
    missing = sorted(reference.moments.keys() - estimates.keys())
    if missing:
        raise ValueError(f"The model lacks parameters of its reference: {', '.join(missing)}.")
    rows = {}
    for name, moments in reference.moments.items():
        estimate = estimates[name]
        off = estimate["mean"] - moments.mean
        rows[name] = {
            **estimate,
            "reference_mean": moments.mean,
            "reference_sd": moments.sd,
            "off_in_sds": off / moments.sd,
            "off_in_errors": off
            / np.hypot(estimate["error"], moments.sd / np.sqrt(reference.draws)),
            "sd_ratio": estimate["sd"] / moments.sd,
            "median_off_in_sds": (estimate["50%"] - moments.median) / moments.sd,
        }
    spreads = {
        name: abs(np.log(max(row["sd_ratio"], 1e-300)))
        for name, row in rows.items()
        if name not in infinite_variance
    }
    return {
        **_worst(rows, "off_in_sds", {name: abs(row["off_in_sds"]) for name, row in rows.items()}),
        **_worst(
            rows, "off_in_errors", {name: abs(row["off_in_errors"]) for name, row in rows.items()}
        ),
        **_worst(rows, "sd_ratio", spreads),
        "parameters": rows,
    }


def _worst(
    rows: dict[str, dict[str, float]], column: str, sizes: dict[str, float]
) -> dict[str, Any]:
    name = max(sizes, key=sizes.__getitem__)
    return {f"worst_{column}": rows[name][column], f"worst_{column}_parameter": name}


def _by_stan_name(posterior: Posterior) -> dict[str, dict[str, float]]:
    rows = iter(posterior.summary().rows)
    return {
        name: next(rows).values
        for site, x in named_sites(posterior.samples).items()
        for name in stan_names(site, np.shape(x)[1:])
    }
