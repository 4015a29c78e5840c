"""The programs of posteriordb once more, in NumPy and SciPy, statement by statement: log densities
of parameters in their own support, with whatever constants. For comparison only.
"""

import numpy as np
from scipy import integrate, stats

__all__ = ["PROGRAMS"]

norm, cauchy = stats.norm.logpdf, stats.cauchy.logpdf


def _vector(data, name):
    return np.asarray(data[name], dtype=float)


def _sd(x):
    return np.std(x, ddof=1)


def ar(data, p):
    y, order = data["y"], data["K"]
    total = norm(p["alpha"], 0, 10) + norm(p["beta"], 0, 10).sum() + cauchy(p["sigma"], 0, 2.5)
    for t in range(order, data["T"]):
        mean = p["alpha"]
        for k in range(1, order + 1):
            mean = mean + p["beta"][k - 1] * y[t - k]
        total += norm(y[t], mean, p["sigma"])
    return total


def arma(data, p):
    y = data["y"]
    total = norm(p["mu"], 0, 10) + norm(p["phi"], 0, 2) + norm(p["theta"], 0, 2)
    total += cauchy(p["sigma"], 0, 2.5)
    error = y[0] - (p["mu"] + p["phi"] * p["mu"])
    total += norm(error, 0, p["sigma"])
    for t in range(1, data["T"]):
        error = y[t] - (p["mu"] + p["phi"] * y[t - 1] + p["theta"] * error)
        total += norm(error, 0, p["sigma"])
    return total


def garch(data, p):
    y, scale = data["y"], data["sigma1"]
    total = norm(y[0], p["mu"], scale)
    for t in range(1, data["T"]):
        shock = (y[t - 1] - p["mu"]) ** 2
        scale = np.sqrt(p["alpha0"] + p["alpha1"] * shock + p["beta1"] * scale**2)
        total += norm(y[t], p["mu"], scale)
    return total


def _paths(log_seen, p):
    """The sum over all paths of states, by the matrix product."""
    transition = np.stack([p["theta1"], p["theta2"]])
    weights, total = np.ones(2), 0.0
    for t, now in enumerate(log_seen):
        weights = (weights if t == 0 else weights @ transition) * np.exp(now - now.max())
        total += now.max() + np.log(weights.sum())
        weights = weights / weights.sum()
    return total


def hmm_example(data, p):
    total = norm(p["mu"], [3, 10], 1).sum()
    return total + _paths(norm(_vector(data, "y")[:, None], p["mu"], 1), p)


def _drive_prior(data, p):
    total = norm(p["phi"], [0, 3], 1).sum() + norm(p["lambda"], [0, 3], 1).sum()
    for row, name in zip(data["alpha"], ("theta1", "theta2"), strict=True):
        total += np.sum((np.asarray(row) - 1.0) * np.log(p[name]))
    return total


def drive_0(data, p):
    u, v = _vector(data, "u")[:, None], _vector(data, "v")[:, None]
    seen = stats.expon.logpdf(u, scale=1 / p["phi"]) + stats.expon.logpdf(v, scale=1 / p["lambda"])
    return _drive_prior(data, p) + _paths(seen, p)


def drive_1(data, p):
    u, v = _vector(data, "u")[:, None], _vector(data, "v")[:, None]
    seen = norm(u, p["phi"], data["tau"]) + norm(v, p["lambda"], data["rho"])
    return _drive_prior(data, p) + _paths(seen, p)


def mixture(data, p):
    y, theta = _vector(data, "y"), p["theta"]
    total = norm(p["sigma"], 0, 2).sum() + norm(p["mu"], 0, 2).sum()
    total += 4 * np.log(theta) + 4 * np.log1p(-theta)
    parts = [norm(y, p["mu"][k], p["sigma"][k]) for k in (0, 1)]
    return total + np.sum(np.log(theta * np.exp(parts[0]) + (1 - theta) * np.exp(parts[1])))


def eight_schools(data, p):
    total = norm(p["theta_trans"]).sum() + norm(p["mu"], 0, 5) + cauchy(p["tau"], 0, 5)
    theta = p["theta_trans"] * p["tau"] + p["mu"]
    return total + norm(data["y"], theta, data["sigma"]).sum()


def _gp_prior(p):
    return stats.gamma.logpdf(p["rho"], 25, scale=1 / 4) + norm(p["alpha"], 0, 2)


def _covariance(data, p, extra):
    x = data["x"]
    return np.array(
        [
            [
                p["alpha"] ** 2 * np.exp(-((a - b) ** 2) / (2 * p["rho"] ** 2))
                + (extra if i == j else 0)
                for j, b in enumerate(x)
            ]
            for i, a in enumerate(x)
        ]
    )


def gp_regr(data, p):
    total = _gp_prior(p) + norm(p["sigma"], 0, 1)
    covariance = _covariance(data, p, p["sigma"])
    return total + stats.multivariate_normal.logpdf(data["y"], np.zeros(data["N"]), covariance)


def gp_pois(data, p):
    f = np.linalg.cholesky(_covariance(data, p, 1e-10)) @ p["f_tilde"]
    counts = stats.poisson.logpmf(data["k"], np.exp(f)).sum()
    return _gp_prior(p) + norm(p["f_tilde"]).sum() + counts


def lotka_volterra(data, p):
    a, b, c, d = p["theta"]

    def speed(_, z):
        return [(a - b * z[1]) * z[0], (-c + d * z[0]) * z[1]]

    last = data["ts"][-1]
    solved = integrate.solve_ivp(
        speed, (0, last), p["z_init"], t_eval=data["ts"], rtol=1e-10, atol=1e-10
    )
    total = norm([a, c], 1, 0.5).sum() + norm([b, d], 0.05, 0.05).sum()
    total += stats.lognorm.logpdf(p["sigma"], 1, scale=np.exp(-1)).sum()
    total += stats.lognorm.logpdf(p["z_init"], 1, scale=10).sum()
    total += stats.lognorm.logpdf(data["y_init"], p["sigma"], scale=p["z_init"]).sum()
    return total + stats.lognorm.logpdf(data["y"], p["sigma"], scale=solved.y.T).sum()


def one_comp(data, p):
    volume = data["V"]

    def speed(t, c):
        dose = np.exp(-p["k_a"] * t) * data["D"] * p["k_a"] / volume
        return dose - p["V_m"] / volume * c / (p["K_m"] + c)

    times = data["times"]
    solved = integrate.solve_ivp(
        speed, (0, times[-1]), [0.0], "LSODA", t_eval=times, rtol=1e-10, atol=1e-12
    )
    total = sum(cauchy(p[name], 0, 1) for name in ("k_a", "K_m", "V_m", "sigma"))
    return total + stats.lognorm.logpdf(data["C_hat"], p["sigma"], scale=solved.y[0]).sum()


def diamonds(data, p):
    x = np.asarray(data["X"], dtype=float)[:, 1:]
    mean = p["Intercept"] + (x - x.mean(axis=0)) @ p["b"]
    total = norm(p["b"]).sum() + stats.t.logpdf(p["Intercept"], 3, 8, 10)
    total += stats.t.logpdf(p["sigma"], 3, 0, 10)
    return total + norm(data["Y"], mean, p["sigma"]).sum()


def kilpisjarvi(data, p):
    total = norm(p["alpha"], data["pmualpha"], data["psalpha"])
    total += norm(p["beta"], data["pmubeta"], data["psbeta"])
    mean = p["alpha"] + p["beta"] * _vector(data, "x")
    return total + norm(data["y"], mean, p["sigma"]).sum()


def blr(data, p):
    total = norm(p["beta"], 0, 10).sum() + norm(p["sigma"], 0, 10)
    return total + norm(data["y"], np.asarray(data["X"]) @ p["beta"], p["sigma"]).sum()


def _linear(response, *terms, cauchy_noise=False):
    """`response` and `terms` are functions of the data's columns by name."""

    def program(data, p):
        class Columns(dict):
            def __missing__(self, name):
                return _vector(data, name)

        columns = Columns()
        mean = p["beta"][0]
        for coefficient, term in zip(p["beta"][1:], terms, strict=True):
            mean = mean + coefficient * term(columns)
        total = cauchy(p["sigma"], 0, 2.5) if cauchy_noise else 0.0
        return total + norm(response(columns), mean, p["sigma"]).sum()

    return program


def _log(*names):
    return lambda c: np.log(np.prod([c[name] for name in names], axis=0))


def _plain(name):
    return lambda c: c[name]


def _z(name, times=1.0):
    return lambda c: (c[name] - np.mean(c[name])) / (times * _sd(c[name]))


def _less(name, what=None):
    return lambda c: c[name] - (np.mean(c[name]) if what is None else what)


def _times(a, b):
    return lambda c: a(c) * b(c)


def _is(name, level):
    return lambda c: np.array([float(x == level) for x in c[name]])


_HEIGHT, _MALE, _EARN = _plain("height"), _plain("male"), _log("earn")
_HS, _IQ, _SCORE = _plain("mom_hs"), _plain("mom_iq"), _plain("kid_score")
_WEIGHT, _GROUP = _log("weight"), _plain("group")
_VOLUME, _AREA = _log("diam1", "diam2", "canopy_height"), _log("diam1", "diam2")


def _shape(c):
    return np.log(c["diam1"] / c["diam2"])


def _interaction(a, b):
    return a, b, _times(a, b)


PROGRAMS = {
    "arK": ar,
    "arma11": arma,
    "garch11": garch,
    "hmm_example": hmm_example,
    "hmm_drive_0": drive_0,
    "hmm_drive_1": drive_1,
    "low_dim_gauss_mix": mixture,
    "eight_schools_noncentered": eight_schools,
    "gp_regr": gp_regr,
    "gp_pois_regr": gp_pois,
    "lotka_volterra": lotka_volterra,
    "one_comp_mm_elim_abs": one_comp,
    "diamonds": diamonds,
    "kilpisjarvi": kilpisjarvi,
    "blr": blr,
    "earn_height": _linear(_plain("earn"), _HEIGHT),
    "log10earn_height": _linear(lambda c: np.log10(c["earn"]), _HEIGHT),
    "logearn_height": _linear(_EARN, _HEIGHT),
    "logearn_height_male": _linear(_EARN, _HEIGHT, _MALE),
    "logearn_logheight_male": _linear(_EARN, _log("height"), _MALE),
    "logearn_interaction": _linear(_EARN, *_interaction(_HEIGHT, _MALE)),
    "logearn_interaction_z": _linear(_EARN, *_interaction(_z("height"), _MALE)),
    "kidscore_momhs": _linear(_SCORE, _HS, cauchy_noise=True),
    "kidscore_momiq": _linear(_SCORE, _IQ, cauchy_noise=True),
    "kidscore_momhsiq": _linear(_SCORE, _HS, _IQ, cauchy_noise=True),
    "kidscore_interaction": _linear(_SCORE, *_interaction(_HS, _IQ), cauchy_noise=True),
    "kidscore_interaction_c": _linear(_SCORE, *_interaction(_less("mom_hs"), _less("mom_iq"))),
    "kidscore_interaction_c2": _linear(
        _SCORE, *_interaction(_less("mom_hs", 0.5), _less("mom_iq", 100))
    ),
    "kidscore_interaction_z": _linear(_SCORE, *_interaction(_z("mom_hs", 2), _z("mom_iq", 2))),
    "kidscore_mom_work": _linear(_SCORE, *(_is("mom_work", k) for k in (2, 3, 4))),
    "mesquite": _linear(
        _plain("weight"),
        *map(_plain, ("diam1", "diam2", "canopy_height", "total_height", "density", "group")),
    ),
    "logmesquite": _linear(
        _WEIGHT,
        *map(_log, ("diam1", "diam2", "canopy_height", "total_height", "density")),
        _GROUP,
    ),
    "logmesquite_logvolume": _linear(_WEIGHT, _VOLUME),
    "logmesquite_logva": _linear(_WEIGHT, _VOLUME, _AREA, _GROUP),
    "logmesquite_logvash": _linear(_WEIGHT, _VOLUME, _AREA, _shape, _log("total_height"), _GROUP),
    "logmesquite_logvas": _linear(
        _WEIGHT, _VOLUME, _AREA, _shape, _log("total_height"), _log("density"), _GROUP
    ),
    "nes": _linear(
        _plain("partyid7"),
        _plain("real_ideo"),
        _plain("race_adj"),
        *(_is("age_discrete", k) for k in (2, 3, 4)),
        *map(_plain, ("educ1", "gender", "income")),
    ),
}
