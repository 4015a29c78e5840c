"""A line or a parabola? Two regressions compared by their evidence, each checked against its closed
form.

python examples/model_choice.py
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import nestedvi as nvi

NOISE = 0.3


def regression(features, y):
    """Weights N(0, 1), noise known: the evidence is a multivariate normal."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([features.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(features @ w, NOISE), obs=y)


def exact_log_Z(features, y):
    return float(
        dist.MultivariateNormal(0.0, features @ features.T + NOISE**2 * jnp.eye(len(y))).log_prob(y)
    )


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--method", default="auto", help="auto, smc, or a row of 'nestedvi methods'")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

rng = np.random.default_rng(2)
x = np.linspace(-1, 1, 25)
y = 0.3 + 0.8 * x - 0.5 * x**2 + NOISE * rng.normal(size=25)
found, truth = {}, {}
for name, degree in (("line", 1), ("parabola", 2)):
    features = jnp.asarray(np.vander(x, degree + 1, increasing=True))
    key = jax.random.key(args.seed + degree)
    found[name] = nvi.sample(key, regression, model_args=(features, y), method=args.method)
    truth[name] = exact_log_Z(features, y)
    print(
        f"{name:<9} log Z = {found[name].log_Z:.4f} ± {found[name].log_Z_stderr:.4f} (exact"
        f" {truth[name]:.4f})"
    )
gain = found["parabola"].log_Z - found["line"].log_Z
error = np.hypot(found["parabola"].log_Z_stderr, found["line"].log_Z_stderr)
print(
    f"log Bayes factor for the parabola = {gain:.4f} ± {error:.4f} (exact"
    f" {truth['parabola'] - truth['line']:.4f})"
)
