"""Cases whose evidence is an integral of one or two dimensions after the rest is integrated out by
hand: hierarchies, shrinkage, heavy tails, bounds. Quadrature is on even grids in double precision.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats
from scipy.special import gammaln, logsumexp

from nestedvi.bench.campaign.case import Case, Spec, log_integral

__all__ = ["HIERARCHIES"]

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def groups(y: np.ndarray, error: np.ndarray, centred: bool) -> Case:
    """y_j ~ N(θ_j, error_j), θ_j ~ N(μ, τ), μ ~ N(0, 5), τ ~ HalfCauchy(5)."""

    def model(error: Any, y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        with numpyro.plate("groups", len(error)):
            if centred:
                theta = numpyro.sample("theta", dist.Normal(mu, tau))
            else:
                theta = mu + tau * numpyro.sample("epsilon", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(theta, error), obs=y)

    log_Z, mean, sd = group_truth(y, error)
    return Case(model, {"model_args": (error, y)}, log_Z, {"mu": (mean, sd)})


def group_truth(y: np.ndarray, error: np.ndarray) -> tuple[float, float, float]:
    """log Z, and mean and standard deviation of μ: given τ everything is Gaussian, log τ is
    left.
    """
    log_tau = np.linspace(-14.0, 12.0, 4001)
    variances = np.exp(2 * log_tau)[:, None] + error**2
    precision = 1 / 25 + np.sum(1 / variances, axis=1)
    mean = np.sum(y / variances, axis=1) / precision
    # log N(y; 0, diag(v) + 25) by the determinant lemma.
    log_y = -0.5 * np.sum(np.log(2 * np.pi * variances) + y**2 / variances, axis=1)
    log_y += -0.5 * np.log(25 * precision) + 0.5 * precision * mean**2
    log_p = log_y + stats.halfcauchy(scale=5.0).logpdf(np.exp(log_tau)) + log_tau
    weights = np.exp(log_p - logsumexp(log_p))
    centre = float(weights @ mean)
    variance = float(weights @ (1 / precision + (mean - centre) ** 2))
    return log_integral(log_p, log_tau[1] - log_tau[0]), centre, np.sqrt(variance)


def many_groups(num: int) -> Case:
    rng = np.random.default_rng(8)
    error = np.full(num, 1.0)
    return groups(rng.normal(2.0, 0.7, size=num) + rng.normal(size=num), error, centred=True)


def horseshoe(dim: int, rows: int) -> Case:
    """y = X b + σ noise with b_j = z_j λ_j τ; X has orthogonal columns, so that given τ and σ the
    b_j are independent.
    """
    rng = np.random.default_rng(9)
    x = np.linalg.qr(rng.normal(size=(rows, dim)))[0] * np.sqrt(rows)
    y = x[:, :3] @ np.array([2.0, -1.5, 1.0]) + rng.normal(size=rows)

    def model(x: Any, y: Any) -> None:
        tau = numpyro.sample("tau", dist.HalfCauchy(0.3))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        with numpyro.plate("columns", dim):
            lam = numpyro.sample("lam", dist.HalfCauchy(1.0))
            b = numpyro.sample("z", dist.Normal(0.0, 1.0)) * lam * tau
        numpyro.sample("y", dist.Normal(x @ b, sigma), obs=y)

    return Case(model, {"model_args": (x, y)}, horseshoe_log_Z(x, y))


def horseshoe_log_Z(x: np.ndarray, y: np.ndarray) -> float:
    rows = len(y)
    fitted = x.T @ y / rows
    rest = np.sum((y - x @ fitted) ** 2)
    log_lam = np.linspace(-16.0, 16.0, 321)
    log_tau, log_sigma = np.linspace(-16.0, 6.0, 111), np.linspace(-2.0, 2.0, 61)
    prior_lam = stats.halfcauchy.logpdf(np.exp(log_lam)) + log_lam + np.log(log_lam[1] - log_lam[0])
    values = np.empty((len(log_tau), len(log_sigma)))
    for i, t in enumerate(log_tau):
        for j, s in enumerate(log_sigma):
            noise = np.exp(2 * s) / rows
            variance = noise + np.exp(2 * (t + log_lam))
            log_normal = -0.5 * np.log(2 * np.pi * variance) - 0.5 * fitted[:, None] ** 2 / variance
            columns = logsumexp(log_normal + prior_lam, axis=1) + 0.5 * np.log(2 * np.pi * noise)
            likelihood = -0.5 * rows * np.log(2 * np.pi * np.exp(2 * s)) - 0.5 * rest / np.exp(
                2 * s
            )
            values[i, j] = columns.sum() + likelihood
    values += (stats.halfcauchy(scale=0.3).logpdf(np.exp(log_tau)) + log_tau)[:, None]
    values += stats.halfnorm(scale=2.0).logpdf(np.exp(log_sigma)) + log_sigma
    return log_integral(values, log_tau[1] - log_tau[0], log_sigma[1] - log_sigma[0])


def wide_counts() -> Case:
    """Counts of 10⁵ whose log rate has a prior of standard deviation 100."""
    y = np.random.default_rng(10).poisson(1e5, size=20)

    def model(y: Any) -> None:
        log_rate = numpyro.sample("log_rate", dist.Normal(0.0, 100.0))
        numpyro.sample("y", dist.Poisson(jnp.exp(log_rate)), obs=y)

    a = np.log(y.mean()) + np.linspace(-0.02, 0.02, 4001)
    log_p = a * y.sum() - len(y) * np.exp(a) - gammaln(y + 1).sum() + stats.norm(0, 100).logpdf(a)
    sd = 1 / np.sqrt(y.sum())
    log_Z = log_integral(log_p, a[1] - a[0])
    return Case(model, {"model_args": (y,)}, log_Z, {"log_rate": (np.log(y.mean()), sd)})


def heavy_location() -> Case:
    """A Cauchy prior far from three precise observations; another scale with a half-Cauchy one."""
    y = np.array([30.0, 30.4, 29.5])

    def model(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Cauchy(0.0, 1.0))
        sigma = numpyro.sample("sigma", dist.HalfCauchy(1.0))
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y)

    # μ far out in its prior has heavy tails: sinh spreads the grid over them.
    u, log_sigma = np.linspace(-14.0, 14.0, 2801), np.linspace(-14.0, 14.0, 1401)
    mu = y.mean() + 0.1 * np.sinh(u)
    jacobian = np.log(0.1 * np.cosh(u))
    square = np.sum((y - mu[:, None]) ** 2, axis=1)
    values = -0.5 * square[:, None] * np.exp(-2 * log_sigma) - 3 * log_sigma
    values += -1.5 * np.log(2 * np.pi) + (stats.cauchy.logpdf(mu) + jacobian)[:, None]
    values += stats.halfcauchy.logpdf(np.exp(log_sigma)) + log_sigma
    log_Z = log_integral(values, u[1] - u[0], log_sigma[1] - log_sigma[0])
    return Case(model, {"model_args": (y,)}, log_Z)


def bounded() -> Case:
    """A truncated normal, a uniform and a half-normal prior, data at their borders."""
    y = np.array([0.05, -0.1, 0.2])

    def model(y: Any) -> None:
        low = numpyro.sample("low", dist.TruncatedNormal(0.0, 1.0, low=0.0, high=3.0))
        share = numpyro.sample("share", dist.Uniform(-1.0, 2.0))
        numpyro.sample("y", dist.Normal(low * share, 0.1), obs=y)

    low, share = np.linspace(0, 3.0, 3001), np.linspace(-1.0, 2.0, 3001)
    log_y = sum(stats.norm(v, 0.1).logpdf(low[:, None] * share) for v in y)
    prior = stats.truncnorm(0.0, 3.0).logpdf(low)[:, None] - np.log(3.0)
    values = np.exp(log_y + prior)
    # Borders have mass here: the trapezoidal rule with its ends halved.
    inner = np.trapezoid(values, share, axis=1)
    return Case(model, {"model_args": (y,)}, float(np.log(np.trapezoid(inner, low))))


def circular() -> Case:
    """Two von Mises angles of which noisy sums are seen."""
    y = np.array([0.5, 0.9])

    def model(y: Any) -> None:
        with numpyro.plate("angles", 2):
            angle = numpyro.sample("angle", dist.VonMises(0.0, 0.5))
        numpyro.sample("y", dist.Normal(jnp.sin(angle).sum(), 0.5), obs=y)

    a = np.linspace(-np.pi, np.pi, 1001)[:-1]
    sums = np.sin(a)[:, None] + np.sin(a)
    log_y = sum(stats.norm(v, 0.5).logpdf(sums) for v in y)
    prior = stats.vonmises(0.5).logpdf(a)
    values = log_y + prior[:, None] + prior
    return Case(model, {"model_args": (y,)}, log_integral(values, a[1] - a[0], a[1] - a[0]))


def ordered() -> Case:
    """An increasing pair, each with noise."""
    y = np.array([0.2, 0.9])

    def model(y: Any) -> None:
        base = dist.Normal(0.0, 1.0).expand([2]).to_event(1)
        cut = numpyro.sample(
            "cut", dist.TransformedDistribution(base, dist.transforms.OrderedTransform())
        )
        numpyro.sample("y", dist.Normal(cut, 0.3), obs=y)

    z = np.linspace(-9.0, 9.0, 2401)
    first, second = z[:, None], z[:, None] + np.exp(z)
    values = stats.norm(y[0], 0.3).logpdf(first) + stats.norm(y[1], 0.3).logpdf(second)
    values = values + stats.norm.logpdf(z)[:, None] + stats.norm.logpdf(z)
    return Case(model, {"model_args": (y,)}, log_integral(values, z[1] - z[0], z[1] - z[0]))


def correlation(dim: int, rows: int) -> Case:
    """An LKJ correlation matrix; with rows of a pair, the correlation by quadrature."""
    rng = np.random.default_rng(11)
    y = rng.multivariate_normal(np.zeros(dim), 0.4 * np.eye(dim) + 0.6, size=rows)

    def model(y: Any) -> None:
        root = numpyro.sample("root", dist.LKJCholesky(dim, 2.0))
        if rows:
            numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(dim), scale_tril=root), obs=y)

    if not rows:
        return Case(model, {"model_args": (y,)}, 0.0)
    # Of a pair: p(r) ∝ (1 − r²)^{η − 1}; r = tanh(u) takes the borders away.
    u = np.linspace(-12.0, 12.0, 4801)
    log_rest = 2 * np.log(2.0) - 2 * np.logaddexp(u, -u)
    r = np.tanh(u)
    log_prior = 2 * log_rest - log_integral(2 * log_rest, u[1] - u[0])
    square = y[:, 0] @ y[:, 0] + y[:, 1] @ y[:, 1] - 2 * r * (y[:, 0] @ y[:, 1])
    log_y = -rows * np.log(2 * np.pi) - 0.5 * rows * log_rest - 0.5 * square * np.exp(-log_rest)
    return Case(model, {"model_args": (y,)}, log_integral(log_prior + log_y, u[1] - u[0]))


def labels() -> Case:
    """Three components whose means may change places: six modes."""
    rng = np.random.default_rng(12)
    y = np.concatenate([rng.normal(m, 0.7, size=8) for m in (-4.0, 0.0, 4.0)])

    def model(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(jnp.zeros(3), 5.0).to_event(1))
        parts = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(mu, 0.7))
        numpyro.sample("y", parts, obs=y)

    return Case(model, {"model_args": (y,)}, labels_log_Z(y))


def labels_log_Z(y: np.ndarray, num: int = 181) -> float:
    """The sum over components is the same for all six orders of the means: one of them, and log 6
    for the others, would do; the whole cube is simpler.
    """
    mu = np.linspace(-9.0, 9.0, num)
    one = np.exp(stats.norm(mu[:, None], 0.7).logpdf(y))
    pair = one[:, None] + one[None]
    prior = stats.norm(0.0, 5.0).logpdf(mu)
    slabs = []
    for i in range(num):
        values = np.log((pair + one[i]) / 3).sum(axis=-1) + prior[i] + prior[:, None] + prior
        slabs.append(logsumexp(values))
    return float(logsumexp(slabs) + 3 * np.log(mu[1] - mu[0]))


_QUADRATURE = "quadrature"
HIERARCHIES: dict[str, Spec] = {
    "schools": Spec(
        partial(groups, EFFECT, ERROR, False), "eight schools, not centred", _QUADRATURE
    ),
    "schools-centred": Spec(
        partial(groups, EFFECT, ERROR, True), "eight schools, centred", _QUADRATURE
    ),
    "groups-30": Spec(partial(many_groups, 30), "thirty groups, centred, 32-d", _QUADRATURE),
    "horseshoe": Spec(partial(horseshoe, 12, 40), "a horseshoe regression, 26-d", _QUADRATURE),
    "wide-counts": Spec(wide_counts, "counts of 10⁵ under a wide prior", _QUADRATURE),
    "heavy-priors": Spec(heavy_location, "Cauchy priors far from the data", _QUADRATURE),
    "bounded": Spec(bounded, "truncated and uniform priors", _QUADRATURE),
    "circular": Spec(circular, "von Mises angles", _QUADRATURE),
    "ordered": Spec(ordered, "an ordered pair", _QUADRATURE),
    "correlation": Spec(partial(correlation, 2, 30), "a correlation with data", _QUADRATURE),
    "correlation-4": Spec(partial(correlation, 4, 0), "an LKJ prior, 6-d"),
    "labels": Spec(labels, "three components, six modes", _QUADRATURE),
}
