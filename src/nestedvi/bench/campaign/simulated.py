"""Cases whose evidence is known from long runs of other algorithms, in `references.json`:
`python benchmarks/campaign_references.py` writes it. Data are drawn from fixed seeds.
"""

import json
from functools import partial
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from nestedvi.bench.campaign.case import Case, Spec

__all__ = ["SIMULATED", "logistic_data", "lorenz_data", "lorenz_step", "volatility_data"]

# Seeds that germinated, of how many, by type of seed and root extract: 21 plates (Crowder 1978).
SEEDS_R = np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3])
SEEDS_N = np.array(
    [39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]
)
SEEDS_TYPE = np.array([0] * 11 + [1] * 10)
SEEDS_EXTRACT = np.array([0] * 5 + [1] * 6 + [0] * 5 + [1] * 5)
LORENZ_STEPS, LORENZ_SEEN = 30, np.r_[0:10, 20:30]
_STEP, _INNOVATION, _NOISE = 0.02, 0.1, 1.0


def reference(name: str) -> float:
    """log Z from the file of references."""
    text = resources.files(__package__).joinpath("references.json").read_text(encoding="utf-8")
    return float(json.loads(text)["references"][name]["log_Z"])


def logistic_data() -> tuple[np.ndarray, np.ndarray]:
    """60 correlated features of 300 rows, and a constant."""
    rng = np.random.default_rng(13)
    x = rng.normal(size=(300, 60)) @ (np.eye(60) + 0.3 * rng.normal(size=(60, 60)) / np.sqrt(60))
    x = np.column_stack([np.ones(300), x])
    w = rng.normal(size=61) * 0.6
    return x, (rng.uniform(size=300) < 1 / (1 + np.exp(-x @ w))).astype(int)


def logistic() -> Case:
    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(jnp.zeros(61), 1.0).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    return Case(model, {"model_args": logistic_data()}, reference("logistic-61"))


def seeds() -> Case:
    """Centred random effects under a vague precision."""

    def model(r: Any, n: Any, kind: Any, extract: Any) -> None:
        tau = numpyro.sample("tau", dist.Gamma(0.01, 0.01))
        alpha = numpyro.sample("alpha", dist.Normal(jnp.zeros(4), 10.0).to_event(1))
        fixed = alpha[0] + alpha[1] * kind + alpha[2] * extract + alpha[3] * kind * extract
        with numpyro.plate("plates", len(r)):
            b = numpyro.sample("b", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
            numpyro.sample("r", dist.Binomial(n, logits=fixed + b), obs=r)

    args = (SEEDS_R, SEEDS_N, SEEDS_TYPE, SEEDS_EXTRACT)
    return Case(model, {"model_args": args}, reference("seeds"))


def lorenz_step(x: Any) -> Any:
    """One Euler step of the Lorenz system, for coordinates on the last axis, without its noise.
    NumPy and JAX arrays alike.
    """
    a, b, c = x[..., 0], x[..., 1], x[..., 2]
    drift = (10.0 * (b - a), a * (28.0 - c) - b, a * b - 8.0 / 3.0 * c)
    stack = jnp.stack if isinstance(x, jax.Array) else np.stack
    return x + _STEP * stack(drift, axis=-1)


def lorenz_data() -> np.ndarray:
    """The first coordinate with noise, at both ends of thirty steps."""
    rng = np.random.default_rng(14)
    x = np.array([-8.0, -9.0, 25.0])
    seen = []
    for _ in range(LORENZ_STEPS):
        seen.append(x[0] + _NOISE * rng.normal())
        x = lorenz_step(x) + np.sqrt(_STEP) * _INNOVATION * rng.normal(size=3)
    return np.array(seen)[LORENZ_SEEN]


def lorenz() -> Case:
    """A bridge: the middle third is not seen. 90 coordinates, far from the origin."""

    def model(y: Any) -> None:
        first = numpyro.sample("first", dist.Normal(jnp.array([-8.0, -9.0, 25.0]), 1.0).to_event(1))
        states = [first]
        for t in range(1, LORENZ_STEPS):
            scale = np.sqrt(_STEP) * _INNOVATION
            step = dist.Normal(lorenz_step(states[-1]), scale).to_event(1)
            states.append(numpyro.sample(f"x{t}", step))
        numpyro.sample("y", dist.Normal(jnp.stack(states)[LORENZ_SEEN, 0], _NOISE), obs=y)

    return Case(model, {"model_args": (lorenz_data(),)}, reference("lorenz-bridge"))


def volatility_data(steps: int) -> np.ndarray:
    rng = np.random.default_rng(15)
    h, y = 0.0, []
    for _ in range(steps):
        h = 0.95 * h + 0.3 * rng.normal()
        y.append(np.exp(-0.5 + h / 2) * rng.normal())
    return np.array(y)


def volatility_model(y: Any) -> None:
    """Returns whose log variance is μ + h_t, with h_t = φ h_{t−1} + σ ε_t stationary, not
    centred.
    """
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    phi = numpyro.sample("phi", dist.Beta(20.0, 1.5)) * 2 - 1
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    noise = numpyro.sample("noise", dist.Normal(jnp.zeros(len(y)), 1.0).to_event(1))

    def step(h: Any, e: Any) -> tuple[Any, Any]:
        h = phi * h + sigma * e
        return h, h

    start = sigma * noise[0] / jnp.sqrt(1 - phi**2)
    _, rest = jax.lax.scan(step, start, noise[1:])
    numpyro.sample("y", dist.Normal(0.0, jnp.exp((mu + jnp.append(start, rest)) / 2)), obs=y)


def volatility(steps: int) -> Case:
    return Case(
        volatility_model,
        {"model_args": (volatility_data(steps),)},
        reference(f"volatility-{steps}"),
    )


SIMULATED: dict[str, Spec] = {
    "logistic-61": Spec(logistic, "a logistic regression, 61-d", "importance sampling"),
    "seeds": Spec(seeds, "seeds of BUGS: centred random effects, 26-d", "quadrature"),
    "lorenz-bridge": Spec(lorenz, "convection in a bridge, 90-d", "particle filter"),
    "volatility-100": Spec(
        partial(volatility, 100), "stochastic volatility, 103-d", "particle filters"
    ),
}
