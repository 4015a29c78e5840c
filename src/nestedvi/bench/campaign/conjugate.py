"""Cases that are NumPyro models with an evidence in closed form: regressions, counts, missing data,
scans, masks, simplices.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from scipy import stats
from scipy.special import betaln, gammaln

from nestedvi.bench.campaign.case import Case, Spec

__all__ = ["CONJUGATE"]


def regression(dim: int, rows: int, noise: float = 1.0) -> Case:
    """y = X b + noise, b ~ N(0, 1)."""
    rng = np.random.default_rng(dim)
    x = rng.normal(size=(rows, dim))
    y = x @ rng.normal(size=dim) + noise * rng.normal(size=rows)

    def model(x: Any, y: Any) -> None:
        b = numpyro.sample("b", dist.Normal(jnp.zeros(dim), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(x @ b, noise), obs=y)

    log_Z = stats.multivariate_normal(np.zeros(rows), x @ x.T + noise**2 * np.eye(rows)).logpdf(y)
    covariance = np.linalg.inv(x.T @ x / noise**2 + np.eye(dim))
    mean = covariance @ x.T @ y / noise**2
    return Case(
        model, {"model_args": (x, y)}, float(log_Z), {"b": (mean, np.sqrt(np.diag(covariance)))}
    )


def counts(size: float, num: int) -> Case:
    """Gamma-Poisson: counts of about `size`."""
    y = np.random.default_rng(3).poisson(size, size=num)

    def model(y: Any) -> None:
        rate = numpyro.sample("rate", dist.Gamma(2.0, 2.0 / size))
        numpyro.sample("y", dist.Poisson(rate), obs=y)

    a, b = 2.0, 2.0 / size
    top, bottom = a + y.sum(), b + num
    log_Z = a * np.log(b) - gammaln(a) + gammaln(top) - top * np.log(bottom) - gammaln(y + 1).sum()
    means = {"rate": (top / bottom, np.sqrt(top) / bottom)}
    return Case(model, {"model_args": (y,)}, float(log_Z), means)


def trials(size: int, num: int) -> Case:
    """Beta-binomial: `num` rows of `size` trials."""
    y = np.random.default_rng(4).binomial(size, 0.3, size=num)

    def model(y: Any) -> None:
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        numpyro.sample("y", dist.Binomial(size, p), obs=y)

    ways = np.sum(gammaln(size + 1) - gammaln(y + 1) - gammaln(size - y + 1))
    a, b = 1 + y.sum(), 1 + np.sum(size - y)
    mean = a / (a + b)
    means = {"p": (mean, np.sqrt(mean * (1 - mean) / (a + b + 1)))}
    return Case(model, {"model_args": (y,)}, float(ways + betaln(a, b)), means)


def edges() -> Case:
    """Three Beta(.05, .05) probabilities, each with one success of one trial."""
    y = np.array([1, 1, 0])

    def model(y: Any) -> None:
        p = numpyro.sample("p", dist.Beta(0.05, 0.05).expand([3]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(p), obs=y)

    return Case(model, {"model_args": (y,)}, 3 * np.log(0.5))


def simplex(concentration: float, y: np.ndarray) -> Case:
    """Dirichlet-multinomial."""
    a = np.full(len(y), concentration)

    def model(y: Any) -> None:
        p = numpyro.sample("p", dist.Dirichlet(jnp.asarray(a)))
        numpyro.sample("y", dist.Multinomial(int(y.sum()), p), obs=y)

    log_Z = gammaln(a.sum()) - gammaln((a + y).sum()) + np.sum(gammaln(a + y) - gammaln(a))
    log_Z += gammaln(y.sum() + 1) - gammaln(y + 1).sum()
    mean = (a + y) / (a + y).sum()
    sd = np.sqrt(mean * (1 - mean) / ((a + y).sum() + 1))
    return Case(model, {"model_args": (y,)}, float(log_Z), {"p": (mean, sd)})


def missing() -> Case:
    """Rows that are missing, by `obs_mask`; a line through the others."""
    rng = np.random.default_rng(5)
    x = np.linspace(-1, 1, 30)
    y = 0.8 * x + 0.5 * rng.normal(size=30)
    seen = rng.uniform(size=30) < 0.6

    def model(x: Any, y: Any, seen: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
        with numpyro.plate("rows", 30):
            numpyro.sample("y", dist.Normal(slope * x, 0.5), obs=y, obs_mask=seen)

    there = x[seen]
    covariance = 4.0 * np.outer(there, there) + 0.25 * np.eye(len(there))
    log_Z = stats.multivariate_normal(np.zeros(len(there)), covariance).logpdf(y[seen])
    variance = 1 / (0.25 + np.sum(there**2) / 0.25)
    means = {"slope": (variance * np.sum(there * y[seen]) / 0.25, np.sqrt(variance))}
    args = (x, np.where(seen, y, np.nan), seen)
    return Case(model, {"model_args": args}, float(log_Z), means)


def masked() -> Case:
    """Six group means, a ragged table of rows under a mask."""
    rng = np.random.default_rng(6)
    y, mask = rng.normal(1.0, 1.5, size=(4, 6)), rng.uniform(size=(4, 6)) < 0.7

    def model(y: Any, mask: Any) -> None:
        with numpyro.plate("groups", 6, dim=-1):
            mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
            with numpyro.plate("rows", 4, dim=-2), numpyro.handlers.mask(mask=mask):
                numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    log_Z, mean, sd = 0.0, [], []
    for rows, seen in zip(y.T, mask.T, strict=True):
        num = int(seen.sum())
        there = stats.multivariate_normal(np.zeros(max(num, 1)), 4.0 + np.eye(max(num, 1)))
        log_Z += float(there.logpdf(rows[seen])) if num else 0.0
        variance = 1 / (0.25 + num)
        mean.append(variance * rows[seen].sum())
        sd.append(np.sqrt(variance))
    means = {"mu": (np.array(mean), np.array(sd))}
    return Case(model, {"model_args": (y, mask)}, log_Z, means)


def walk(steps: int) -> Case:
    """A Gaussian walk by `scan`, seen with noise."""
    rng = np.random.default_rng(7)
    covariance = 0.25 * np.minimum.outer(np.arange(1, steps + 1), np.arange(1, steps + 1))
    x = np.linalg.cholesky(covariance) @ rng.normal(size=steps)
    y = x + rng.normal(size=steps)

    def model(y: Any) -> None:
        def step(x: Any, y: Any) -> tuple[Any, None]:
            x = numpyro.sample("x", dist.Normal(x, 0.5))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
            return x, None

        scan(step, 0.0, y)

    whole = covariance + np.eye(steps)
    gain = covariance @ np.linalg.inv(whole)
    sd = np.sqrt(np.diag(covariance - gain @ covariance))
    log_Z = stats.multivariate_normal(np.zeros(steps), whole).logpdf(y)
    return Case(model, {"model_args": (jnp.asarray(y),)}, float(log_Z), {"x": (gain @ y, sd)})


def flat_mean() -> Case:
    """A flat prior with data: log Z holds an arbitrary constant, which the diagnosis must name."""
    y = np.array([0.3, -1.2, 0.8, 2.1])

    def model(y: Any) -> None:
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    scatter = -1.5 * np.log(2 * np.pi) - 0.5 * np.log(4) - 0.5 * np.sum((y - y.mean()) ** 2)
    means = {"mu": (y.mean(), 0.5)}
    return Case(model, {"model_args": (y,)}, float(scatter), means, must_say="improper")


def unidentified() -> Case:
    """Two flat means of which the data see the sum alone."""
    y = np.array([0.3, -1.2, 0.8, 2.1])

    def model(y: Any) -> None:
        real = dist.constraints.real
        a = numpyro.sample("a", dist.ImproperUniform(real, (), ()))
        b = numpyro.sample("b", dist.ImproperUniform(real, (), ()))
        numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y)

    return Case(model, {"model_args": (y,)}, None)


CONJUGATE: dict[str, Spec] = {
    "regression-10": Spec(partial(regression, 10, 40), "a Gaussian regression, 10-d"),
    "regression-100": Spec(partial(regression, 100, 150), "a Gaussian regression, 100-d"),
    "counts-1e4": Spec(partial(counts, 1e4, 300), "Gamma-Poisson, 300 counts of 10⁴"),
    "counts-1e5": Spec(partial(counts, 1e5, 300), "Gamma-Poisson, 300 counts of 10⁵"),
    "trials-1e5": Spec(partial(trials, 100_000, 200), "beta-binomial, 200 rows of 10⁵"),
    "edges": Spec(edges, "Beta(.05, .05) priors"),
    "simplex": Spec(
        partial(simplex, 1.0, np.array([7, 2, 0, 4, 1])), "Dirichlet(1) and a multinomial"
    ),
    "simplex-edge": Spec(
        partial(simplex, 0.1, np.array([5, 0, 0, 3])), "Dirichlet(.1) with zero counts"
    ),
    "simplex-corner": Spec(
        partial(simplex, 0.05, np.array([1, 0, 0])), "Dirichlet(.05) with one count"
    ),
    "missing": Spec(missing, "missing rows by obs_mask, 31-d"),
    "masked": Spec(masked, "a ragged table under a mask"),
    "scan": Spec(partial(walk, 20), "a Gaussian walk by scan, 20-d"),
    "improper-prior": Spec(flat_mean, "a flat prior, which the diagnosis must name"),
    "improper-posterior": Spec(unidentified, "two flat means of one sum", "there is none"),
}
