"""Design matrices of the regressions, from posteriordb's data: columns as the programs name them,
a first one of ones, and what is regressed. No priors here.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["DESIGNS", "Data", "centred", "diamonds_design", "plain_design"]

Data = Mapping[str, Any]
Arrays = tuple[np.ndarray, ...]
Design = Callable[[Data], Arrays]


def _columns(data: Data, *names: str) -> list[np.ndarray]:
    return [np.asarray(data[name], dtype=float) for name in names]


def _design(y: np.ndarray, *columns: np.ndarray) -> Arrays:
    return np.column_stack([np.ones(len(y)), *columns]), y


def centred(x: np.ndarray) -> np.ndarray:
    return x - x.mean()


def _standard(x: np.ndarray, times: float = 1.0) -> np.ndarray:
    """Centred, in units of its sample standard deviation (or some times that)."""
    return centred(x) / (times * x.std(ddof=1))


def _indicators(x: np.ndarray, *levels: int) -> list[np.ndarray]:
    return [(x == level).astype(float) for level in levels]


def earn_height(data: Data) -> Arrays:
    earn, height = _columns(data, "earn", "height")
    return _design(earn, height)


def log10earn_height(data: Data) -> Arrays:
    earn, height = _columns(data, "earn", "height")
    return _design(np.log10(earn), height)


def logearn_height(data: Data) -> Arrays:
    earn, height = _columns(data, "earn", "height")
    return _design(np.log(earn), height)


def logearn_height_male(data: Data) -> Arrays:
    earn, height, male = _columns(data, "earn", "height", "male")
    return _design(np.log(earn), height, male)


def logearn_logheight_male(data: Data) -> Arrays:
    earn, height, male = _columns(data, "earn", "height", "male")
    return _design(np.log(earn), np.log(height), male)


def logearn_interaction(data: Data) -> Arrays:
    earn, height, male = _columns(data, "earn", "height", "male")
    return _design(np.log(earn), height, male, height * male)


def logearn_interaction_z(data: Data) -> Arrays:
    earn, height, male = _columns(data, "earn", "height", "male")
    height = _standard(height)
    return _design(np.log(earn), height, male, height * male)


def _kidscore(data: Data, *names: str) -> list[np.ndarray]:
    return _columns(data, "kid_score", *names)


def kidscore_momhs(data: Data) -> Arrays:
    return _design(*_kidscore(data, "mom_hs"))


def kidscore_momiq(data: Data) -> Arrays:
    return _design(*_kidscore(data, "mom_iq"))


def kidscore_momhsiq(data: Data) -> Arrays:
    return _design(*_kidscore(data, "mom_hs", "mom_iq"))


def kidscore_interaction(data: Data) -> Arrays:
    score, school, iq = _kidscore(data, "mom_hs", "mom_iq")
    return _design(score, school, iq, school * iq)


def kidscore_interaction_c(data: Data) -> Arrays:
    score, school, iq = _kidscore(data, "mom_hs", "mom_iq")
    school, iq = centred(school), centred(iq)
    return _design(score, school, iq, school * iq)


def kidscore_interaction_c2(data: Data) -> Arrays:
    score, school, iq = _kidscore(data, "mom_hs", "mom_iq")
    school, iq = school - 0.5, iq - 100
    return _design(score, school, iq, school * iq)


def kidscore_interaction_z(data: Data) -> Arrays:
    score, school, iq = _kidscore(data, "mom_hs", "mom_iq")
    school, iq = _standard(school, 2), _standard(iq, 2)
    return _design(score, school, iq, school * iq)


def kidscore_mom_work(data: Data) -> Arrays:
    score, work = _kidscore(data, "mom_work")
    return _design(score, *_indicators(work, 2, 3, 4))


_BUSH = ("weight", "diam1", "diam2", "canopy_height")


def mesquite(data: Data) -> Arrays:
    return _design(*_columns(data, *_BUSH, "total_height", "density", "group"))


def logmesquite(data: Data) -> Arrays:
    *sizes, group = _columns(data, *_BUSH, "total_height", "density", "group")
    return _design(*map(np.log, sizes), group)


def _log_canopy(data: Data) -> tuple[np.ndarray, ...]:
    """Logarithms of weight, and of the canopy's volume, area and shape."""
    weight, long, short, height = map(np.log, _columns(data, *_BUSH))
    return weight, long + short + height, long + short, long - short


def logmesquite_logvolume(data: Data) -> Arrays:
    weight, volume, *_ = _log_canopy(data)
    return _design(weight, volume)


def logmesquite_logva(data: Data) -> Arrays:
    weight, volume, area, _ = _log_canopy(data)
    return _design(weight, volume, area, *_columns(data, "group"))


def logmesquite_logvash(data: Data) -> Arrays:
    total, group = _columns(data, "total_height", "group")
    return _design(*_log_canopy(data), np.log(total), group)


def logmesquite_logvas(data: Data) -> Arrays:
    total, density, group = _columns(data, "total_height", "density", "group")
    return _design(*_log_canopy(data), np.log(total), np.log(density), group)


def nes(data: Data) -> Arrays:
    party, ideology, race, age = _columns(data, "partyid7", "real_ideo", "race_adj", "age_discrete")
    rest = _columns(data, "educ1", "gender", "income")
    return _design(party, ideology, race, *_indicators(age, 2, 3, 4), *rest)


def plain_design(data: Data) -> Arrays:
    """A matrix that the data hold as it is."""
    return np.asarray(data["X"], dtype=float), np.asarray(data["y"], dtype=float)


def diamonds_design(data: Data) -> Arrays:
    """Every column but the intercept's, centred."""
    x, y = np.asarray(data["X"], dtype=float)[:, 1:], np.asarray(data["Y"], dtype=float)
    return x - x.mean(axis=0), y


DESIGNS: dict[str, Design] = {
    design.__name__: design
    for design in (
        earn_height,
        log10earn_height,
        logearn_height,
        logearn_height_male,
        logearn_logheight_male,
        logearn_interaction,
        logearn_interaction_z,
        kidscore_momhs,
        kidscore_momiq,
        kidscore_momhsiq,
        kidscore_interaction,
        kidscore_interaction_c,
        kidscore_interaction_c2,
        kidscore_interaction_z,
        kidscore_mom_work,
        mesquite,
        logmesquite,
        logmesquite_logvolume,
        logmesquite_logva,
        logmesquite_logvash,
        logmesquite_logvas,
        nes,
    )
}
