"""Eight schools: posterior and evidence of a hierarchical NumPyro model, checked against a
one-dimensional integral.

python examples/eight_schools.py
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import nestedvi as nvi

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(error, effect=None):
    """Effects θ = μ + τ ε, non-centred, so that the posterior is no funnel."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(error)):
        epsilon = numpyro.sample("epsilon", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * epsilon)
        numpyro.sample("effect", dist.Normal(theta, error), obs=effect)


def exact_log_Z():
    """Given τ the effects are jointly Gaussian, with covariance diag(τ² + error²) + 25; log τ is
    left, on a grid.
    """
    log_tau = jnp.linspace(-12.0, 9.0, 421)

    def marginal(t):
        return dist.MultivariateNormal(jnp.zeros(8), jnp.diag(jnp.exp(2 * t) + ERROR**2) + 25.0)

    log_y = jax.vmap(lambda t: marginal(t).log_prob(EFFECT))(log_tau)
    log_prior = dist.HalfCauchy(5.0).log_prob(jnp.exp(log_tau)) + log_tau
    return jax.nn.logsumexp(log_y + log_prior) + jnp.log(log_tau[1] - log_tau[0])


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--method", default="auto", help="auto, smc, or a row of 'nestedvi methods'")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

posterior = nvi.sample(
    jax.random.key(args.seed),
    schools,
    model_args=(ERROR,),
    model_kwargs={"effect": EFFECT},
    method=args.method,
)
print(posterior.summary())
print(f"log Z = {posterior.log_Z:.4f} ± {posterior.log_Z_stderr:.4f} (exact {exact_log_Z():.4f})")
