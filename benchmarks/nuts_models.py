"""NumPyro models of 3 to 35 dimensions as users write them, with data of fixed seeds, for the
comparison with NUTS.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

__all__ = ["MODELS"]

Built = tuple[Callable, tuple[Any, ...]]


def _design(seed: int, rows: int, columns: int) -> tuple[np.random.Generator, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(rows, columns))


def regression(columns: int, rows: int) -> Built:
    rng, x = _design(1, rows, columns)
    y = 0.5 + x @ rng.normal(size=columns) + 0.7 * rng.normal(size=rows)

    def model(x, y):
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
        b = numpyro.sample("b", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        numpyro.sample("y", dist.Normal(intercept + x @ b, sigma), obs=y)

    return model, (x, y)


def logistic(x: np.ndarray, y: np.ndarray) -> Built:
    def model(x, y):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    return model, (x, y)


def logistic_simulated() -> Built:
    rng, x = _design(2, 200, 20)
    return logistic(x, (rng.uniform(size=200) < 1 / (1 + np.exp(-x[:, 0] + x[:, 1]))).astype(int))


def breast_cancer() -> Built:
    """As the target of that name; the data come with scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    scaled = features / features.std(axis=0)
    return logistic(np.column_stack([np.ones(len(scaled)), scaled]), labels)


def schools() -> Built:
    effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def model(error, effect):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        with numpyro.plate("school", len(error)):
            epsilon = numpyro.sample("epsilon", dist.Normal(0.0, 1.0))
            numpyro.sample("effect", dist.Normal(mu + tau * epsilon, error), obs=effect)

    return model, (error, effect)


def poisson() -> Built:
    rng, x = _design(3, 150, 5)
    y = rng.poisson(np.exp(1.0 + x @ np.array([0.3, -0.2, 0.1, 0.0, 0.4])))

    def model(x, y):
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 3.0))
        b = numpyro.sample("b", dist.Normal(jnp.zeros(5), 1.0).to_event(1))
        numpyro.sample("y", dist.Poisson(jnp.exp(intercept + x @ b)), obs=y)

    return model, (x, y)


def negative_binomial() -> Built:
    rng, x = _design(4, 150, 3)
    rate = np.exp(1.0 + x @ np.array([0.5, -0.3, 0.2])) * rng.gamma(2.0, 0.5, size=150)
    y = rng.poisson(rate)

    def model(x, y):
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 3.0))
        b = numpyro.sample("b", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        shape = numpyro.sample("shape", dist.Gamma(2.0, 0.5))
        mean = jnp.exp(intercept + x @ b)
        numpyro.sample("y", dist.NegativeBinomial2(mean, shape), obs=y)

    return model, (x, y)


def robust() -> Built:
    rng, x = _design(5, 100, 4)
    y = x @ np.array([1.0, -0.5, 0.0, 2.0]) + 0.5 * rng.standard_t(3, size=100)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(jnp.zeros(4), 2.0).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
        numpyro.sample("y", dist.StudentT(freedom, x @ b, sigma), obs=y)

    return model, (x, y)


def varying_intercepts() -> Built:
    rng = np.random.default_rng(6)
    group = rng.integers(20, size=200)
    x = rng.normal(size=200)
    y = 1.0 + rng.normal(0, 0.8, size=20)[group] + 0.5 * x + 0.6 * rng.normal(size=200)

    def model(group, x, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with numpyro.plate("groups", 20):
            a = mu + tau * numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a[group] + slope * x, sigma), obs=y)

    return model, (group, x, y)


def autoregression() -> Built:
    rng = np.random.default_rng(7)
    y = [0.0]
    for _ in range(199):
        y.append(0.3 + 0.7 * y[-1] + 0.5 * rng.normal())

    def model(y):
        level = numpyro.sample("level", dist.Normal(0.0, 2.0))
        phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(level + phi * y[:-1], sigma), obs=y[1:])

    return model, (np.array(y),)


def mixture() -> Built:
    rng = np.random.default_rng(8)
    y = np.concatenate([rng.normal(-2, 0.7, size=60), rng.normal(1.5, 1.0, size=90)])

    def model(y):
        share = numpyro.sample("share", dist.Beta(2.0, 2.0))
        first = numpyro.sample("first", dist.Normal(-1.0, 2.0))
        gap = numpyro.sample("gap", dist.HalfNormal(3.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(jnp.ones(2)).to_event(1))
        parts = dist.Normal(jnp.stack([first, first + gap]), sigma)
        weights = dist.Categorical(jnp.stack([share, 1 - share]))
        numpyro.sample("y", dist.MixtureSameFamily(weights, parts), obs=y)

    return model, (y,)


def process() -> Built:
    """A Gaussian process of sixty points with its function integrated out."""
    rng = np.random.default_rng(9)
    x = np.sort(rng.uniform(0, 5, size=60))
    y = np.sin(2 * x) + 0.3 * rng.normal(size=60)

    def model(x, y):
        length = numpyro.sample("length", dist.LogNormal(0.0, 1.0))
        scale = numpyro.sample("scale", dist.HalfNormal(2.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        k = scale**2 * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2)
        k = k + (noise**2 + 1e-4) * jnp.eye(len(x))
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), k), obs=y)

    return model, (x, y)


def walk() -> Built:
    """A local level of thirty steps, not centred."""
    rng = np.random.default_rng(10)
    y = np.cumsum(0.3 * rng.normal(size=30)) + 0.5 * rng.normal(size=30)

    def model(y):
        step = numpyro.sample("step", dist.HalfNormal(1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        e = numpyro.sample("e", dist.Normal(jnp.zeros(30), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(step * jnp.cumsum(e), noise), obs=y)

    return model, (y,)


MODELS: dict[str, Callable[[], Built]] = {
    "line": lambda: regression(1, 40),
    "regression-10": lambda: regression(10, 100),
    "regression-30": lambda: regression(30, 200),
    "logistic-20": logistic_simulated,
    "breast-cancer": breast_cancer,
    "schools": schools,
    "poisson": poisson,
    "negative-binomial": negative_binomial,
    "robust": robust,
    "varying-intercepts": varying_intercepts,
    "autoregression": autoregression,
    "mixture": mixture,
    "process": process,
    "walk": walk,
}
