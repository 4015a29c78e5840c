"""The posteriors by posteriordb's names: which model, and what it takes from the data. Data are not
read here.

Evidences count normalised priors and likelihoods. Stan's `~` leaves constants out and its
truncations have none, so a program's own target differs by a constant that changes no posterior.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestedvi.bench.posteriordb import (
    dynamics,
    gaussian_process,
    hidden_markov,
    regression,
    time_series,
)
from nestedvi.bench.posteriordb.designs import DESIGNS, Data, diamonds_design, plain_design
from nestedvi.errors import UnknownNameError

__all__ = ["POSTERIORS", "Entry", "get_posterior"]


@dataclass(frozen=True)
class Entry:
    """A posterior: its data set, its model, and the model's arguments from the data.

    `proper` says that all priors are, so that log Z means something. `minutes` is roughly what two
    answers take on one core: long ones go first. `infinite_variance` names parameters whose
    posterior has none, so that no two standard deviations of draws need agree.
    """

    data: str
    model: Callable[..., None]
    arguments: Callable[[Data], tuple[Any, ...]]
    proper: bool = False
    minutes: float = 1.0
    infinite_variance: tuple[str, ...] = ()


def _lagged(data: Data) -> tuple[Any, ...]:
    y, order = np.asarray(data["y"], dtype=float), data["K"]
    return np.column_stack([y[order - k : -k] for k in range(1, order + 1)]), y[order:]


def _arrays(*names: str) -> Callable[[Data], tuple[Any, ...]]:
    """Those of the data, in that order, lists as arrays."""

    def pick(data: Data) -> tuple[Any, ...]:
        values = (data[name] for name in names)
        return tuple(np.asarray(x, dtype=float) if isinstance(x, list) else x for x in values)

    return pick


def _drive(data: Data) -> tuple[Any, ...]:
    return (*_arrays("u", "v", "alpha")(data), (data["tau"], data["rho"]))


def _kilpisjarvi(data: Data) -> tuple[Any, ...]:
    level, slope = (data["pmualpha"], data["psalpha"]), (data["pmubeta"], data["psbeta"])
    return (*_arrays("x", "y")(data), level, slope)


def _counts(data: Data) -> tuple[Any, ...]:
    return np.asarray(data["x"], dtype=float), np.asarray(data["k"])


_CAUCHY_NOISE = ("momhs", "momiq", "momhsiq", "interaction")


def _regressions() -> dict[str, Entry]:
    """Every design on the data that it is for."""
    entries: dict[str, Entry] = {}
    years = range(1972, 2001, 4)
    for name, design in DESIGNS.items():
        model = regression.flat_regression
        if "earn" in name:
            data = ["earnings"]
        elif name.removeprefix("kidscore_") in _CAUCHY_NOISE:
            data, model = ["kidiq"], regression.cauchy_noise_regression
        elif name.startswith("kidscore"):
            data = ["kidiq_with_mom_work"]
        elif "mesquite" in name:
            data = ["mesquite"]
        else:
            data = [f"nes{year}" for year in years]
        entries |= {f"{each}-{name}": Entry(each, model, design) for each in data}
    return entries


def _other_regressions() -> dict[str, Entry]:
    """Regressions whose model is not that of a design alone."""
    return {
        "diamonds-diamonds": Entry("diamonds", regression.diamonds, diamonds_design, True, 20.0),
        "kilpisjarvi_mod-kilpisjarvi": Entry(
            "kilpisjarvi_mod", regression.kilpisjarvi, _kilpisjarvi
        ),
        **{
            f"{data}-blr": Entry(data, regression.normal_regression, plain_design, True)
            for data in ("sblrc", "sblri")
        },
    }


def _series() -> dict[str, Entry]:
    """Time series."""
    return {
        "arK-arK": Entry("arK", time_series.autoregression, _lagged, True),
        "arma-arma11": Entry("arma", time_series.arma11, _arrays("y"), True, 4.0),
        "garch-garch11": Entry("garch", time_series.garch11, _arrays("y", "sigma1"), False, 5.0),
    }


def _discrete_states() -> dict[str, Entry]:
    """Hidden Markov models and mixtures, whose discrete variables are summed out."""
    return {
        "bball_drive_event_0-hmm_drive_0": Entry(
            "bball_drive_event_0",
            hidden_markov.exponential_drive,
            _arrays("u", "v", "alpha"),
            True,
            9.0,
        ),
        "bball_drive_event_1-hmm_drive_1": Entry(
            "bball_drive_event_1", hidden_markov.normal_drive, _drive, True, 9.0
        ),
        "hmm_example-hmm_example": Entry(
            "hmm_example", hidden_markov.hmm_example, _arrays("y"), True, 5.0
        ),
        "low_dim_gauss_mix-low_dim_gauss_mix": Entry(
            "low_dim_gauss_mix", hidden_markov.low_dim_gauss_mix, _arrays("y"), True, 4.0
        ),
    }


def _processes() -> dict[str, Entry]:
    """Gaussian processes and hierarchies."""
    return {
        "eight_schools-eight_schools_noncentered": Entry(
            "eight_schools", gaussian_process.eight_schools, _arrays("y", "sigma"), True, 3.0
        ),
        "gp_pois_regr-gp_pois_regr": Entry(
            "gp_pois_regr", gaussian_process.gp_poisson, _counts, True, 6.0
        ),
        "gp_pois_regr-gp_regr": Entry(
            "gp_pois_regr", gaussian_process.gp_regression, _arrays("x", "y"), True, 2.0
        ),
    }


def _dynamics() -> dict[str, Entry]:
    """Differential equations."""
    return {
        "hudson_lynx_hare-lotka_volterra": Entry(
            "hudson_lynx_hare",
            dynamics.lotka_volterra,
            _arrays("ts", "y_init", "y"),
            True,
            15.0,
        ),
        "one_comp_mm_elim_abs-one_comp_mm_elim_abs": Entry(
            "one_comp_mm_elim_abs",
            dynamics.one_compartment,
            _arrays("times", "C_hat", "D", "V"),
            True,
            14.0,
            ("K_m", "V_m"),
        ),
    }


_KINDS = (
    _regressions(),
    _other_regressions(),
    _series(),
    _discrete_states(),
    _processes(),
    _dynamics(),
)
POSTERIORS: dict[str, Entry] = dict(sorted(item for kind in _KINDS for item in kind.items()))


def get_posterior(name: str) -> Entry:
    """The posterior of that name, or an error with the nearest name."""
    if name not in POSTERIORS:
        raise UnknownNameError("posterior", name, POSTERIORS)
    return POSTERIORS[name]
