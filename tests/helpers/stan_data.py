"""Small made-up data in the form of posteriordb's, one for every data set."""

import numpy as np

__all__ = ["made_up_data"]

_NUM = 12


def made_up_data(name):
    """The data set `name` with a few rows that were never measured."""
    rng = np.random.default_rng(7)

    def numbers(low=0.5, high=3.0, num=_NUM):
        return rng.uniform(low, high, num).round(3).tolist()

    def labels(*values):
        return [*values, *rng.choice(values, _NUM - len(values)).tolist()]

    series = rng.normal(size=_NUM).round(3).tolist()
    if name.startswith("nes"):
        columns = ("partyid7", "real_ideo", "race_adj", "educ1", "gender", "income")
        ages = {"age_discrete": labels(1, 2, 3, 4)}
        return {"N": _NUM, **{column: numbers() for column in columns}, **ages}
    kids = {
        "kid_score": numbers(60, 120),
        "mom_iq": numbers(80, 120),
        "mom_hs": labels(0, 1),
        "mom_work": labels(1, 2, 3, 4),
    }
    drive = {"K": 2, "N": _NUM, "u": numbers(), "v": numbers(), "alpha": [[4, 2], [2, 4]]}
    matrix = rng.normal(size=(_NUM, 3)).round(3)
    bush = ("weight", "diam1", "diam2", "canopy_height", "total_height", "density")
    all_data = {
        "arK": {"K": 2, "T": _NUM, "y": series},
        "arma": {"T": _NUM, "y": series},
        "garch": {"T": _NUM, "y": series, "sigma1": 0.5},
        "hmm_example": {"N": _NUM, "K": 2, "y": numbers(1, 9)},
        "low_dim_gauss_mix": {"N": _NUM, "y": series},
        "bball_drive_event_0": drive,
        "bball_drive_event_1": {**drive, "tau": 0.8, "rho": 0.6},
        "diamonds": {
            "X": np.column_stack([np.ones(_NUM), matrix]).tolist(),
            "Y": series,
        },
        "eight_schools": {"y": series[:4], "sigma": numbers(num=4)},
        "gp_pois_regr": {"N": 4, "x": [-3, 0, 1, 4], "y": series[:4], "k": [3, 0, 1, 2]},
        "hudson_lynx_hare": {
            "ts": [1, 2, 3],
            "y_init": [3.0, 2.0],
            "y": [[2.0, 2.5], [1.5, 2.0], [2.0, 1.0]],
        },
        "kilpisjarvi_mod": {
            "x": numbers(),
            "y": series,
            "pmualpha": 0.2,
            "psalpha": 3.0,
            "pmubeta": 0.1,
            "psbeta": 0.5,
        },
        "one_comp_mm_elim_abs": {
            "D": 3.0,
            "V": 2.0,
            "times": [0.5, 1.0, 2.0],
            "C_hat": [0.6, 0.7, 0.5],
        },
        "earnings": {
            "earn": numbers(1, 9),
            "height": numbers(),
            "male": labels(0, 1),
        },
        "kidiq": kids,
        "kidiq_with_mom_work": kids,
        "mesquite": {**{column: numbers() for column in bush}, "group": labels(0, 1)},
        **{blr: {"X": matrix.tolist(), "y": series} for blr in ("sblrc", "sblri")},
    }
    return all_data[name]
