"""Hidden Markov models of two states, their paths summed out, and a mixture of two normals, which
is one without memory.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist

from nestedvi.bench.posteriordb.priors import OrderedNormal

__all__ = ["exponential_drive", "forward", "hmm_example", "low_dim_gauss_mix", "normal_drive"]


def forward(log_seen: jax.Array, log_transition: jax.Array) -> jax.Array:
    """log p(x_{1:T}), summed over all paths of states that start in either with the same
    probability.

    `log_seen[t, k]` is log p(x_t | state k), `log_transition[j, k]` that of going from j to k.
    """

    def step(log_alpha, now):
        moved = jax.nn.logsumexp(log_alpha[:, None] + log_transition, axis=0)
        return moved + now, None

    start = log_seen[0] - np.log(log_seen.shape[1])
    last, _ = jax.lax.scan(step, start, log_seen[1:])
    return jax.nn.logsumexp(last)


def _transition(rows: jax.Array) -> jax.Array:
    """The two rows of the transition matrix, each with a Dirichlet prior; their logarithms."""
    theta1 = numpyro.sample("theta1", dist.Dirichlet(rows[0]))
    theta2 = numpyro.sample("theta2", dist.Dirichlet(rows[1]))
    return jnp.log(jnp.stack([theta1, theta2]))


def hmm_example(y: jax.Array) -> None:
    """Unit normals around two ordered positive means, flat transitions."""
    log_transition = _transition(jnp.ones((2, 2)))
    mu = numpyro.sample("mu", OrderedNormal((3.0, 10.0), 1.0, positive=True))
    log_seen = dist.Normal(mu, 1.0).log_prob(y[:, None])
    numpyro.factor("y", forward(log_seen, log_transition))


def exponential_drive(u: jax.Array, v: jax.Array, rows: jax.Array) -> None:
    """Basketball: inverse speed and distance from the hoop, both exponential in each state."""
    log_transition = _transition(rows)
    phi = numpyro.sample("phi", OrderedNormal((0.0, 3.0), 1.0, positive=True))
    lam = numpyro.sample("lambda", OrderedNormal((0.0, 3.0), 1.0, positive=True))
    log_seen = dist.Exponential(phi).log_prob(u[:, None])
    log_seen += dist.Exponential(lam).log_prob(v[:, None])
    numpyro.factor("u, v", forward(log_seen, log_transition))


def normal_drive(u: jax.Array, v: jax.Array, rows: jax.Array, scales: tuple[float, float]) -> None:
    """The same data on a logarithmic scale, normal with known scales."""
    log_transition = _transition(rows)
    phi = numpyro.sample("phi", OrderedNormal((0.0, 3.0), 1.0))
    lam = numpyro.sample("lambda", OrderedNormal((0.0, 3.0), 1.0))
    log_seen = dist.Normal(phi, scales[0]).log_prob(u[:, None])
    log_seen += dist.Normal(lam, scales[1]).log_prob(v[:, None])
    numpyro.factor("u, v", forward(log_seen, log_transition))


def low_dim_gauss_mix(y: jax.Array) -> None:
    """A mixture of two normals with ordered means."""
    mu = numpyro.sample("mu", OrderedNormal((0.0, 0.0), 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2).expand([2]).to_event(1))
    theta = numpyro.sample("theta", dist.Beta(5, 5))
    weights = dist.Categorical(probs=jnp.stack([theta, 1 - theta]))
    numpyro.sample("y", dist.MixtureSameFamily(weights, dist.Normal(mu, sigma)), obs=y)
