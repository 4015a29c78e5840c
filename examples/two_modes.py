"""A posterior with two modes: a NUTS chain stays in the one it started in, `nvi.sample` finds both
with their shares.

python examples/two_modes.py
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import nestedvi as nvi


def mixture(y):
    """Two components of equal weight; the priors of their means differ a little, and so do the
    masses of the two labellings.
    """
    a = numpyro.sample("a", dist.Normal(1.0, 5.0))
    b = numpyro.sample("b", dist.Normal(-1.0, 5.0))
    parts = dist.MixtureSameFamily(
        dist.Categorical(jnp.ones(2) / 2), dist.Normal(jnp.stack([a, b]), 1.0)
    )
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", parts, obs=y)


def exact(y):
    """log Z and the share of a > b, on a grid."""
    axis = np.linspace(-6, 6, 601)
    a, b = np.meshgrid(axis, axis, indexing="ij")
    log_p = -0.5 * ((a - 1) / 5) ** 2 - 0.5 * ((b + 1) / 5) ** 2 - np.log(2 * np.pi * 25)
    for x in y:
        log_p += (
            np.logaddexp(-0.5 * (x - a) ** 2, -0.5 * (x - b) ** 2)
            - np.log(2)
            - 0.5 * np.log(2 * np.pi)
        )
    p = np.exp(log_p - log_p.max())
    return log_p.max() + np.log(p.sum() * (axis[1] - axis[0]) ** 2), p[a > b].sum() / p.sum()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--method", default="auto", help="auto, smc, or a row of 'nestedvi methods'")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

rng = np.random.default_rng(1)
y = np.where(rng.uniform(size=30) < 0.5, 2.5, -2.5) + rng.normal(size=30)
log_Z, share = exact(y)

key_nuts, key_sample = jax.random.split(jax.random.key(args.seed))
chain = MCMC(NUTS(mixture), num_warmup=500, num_samples=1000, progress_bar=False)
chain.run(key_nuts, y)
stuck = np.mean(chain.get_samples()["a"] > chain.get_samples()["b"])
print(f"one NUTS chain: share of a > b = {stuck:.3f} (exact {share:.3f})")

posterior = nvi.sample(key_sample, mixture, model_args=(y,), method=args.method)
estimate, error = posterior.expectation(lambda sites: sites["a"] > sites["b"])
print(f"nestedvi:       share of a > b = {estimate:.3f} ± {error:.3f}")
print(f"log Z = {posterior.log_Z:.4f} ± {posterior.log_Z_stderr:.4f} (exact {log_Z:.4f})")
