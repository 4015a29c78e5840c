"""A posterior with several modes."""

# %% [markdown]
# # A posterior with several modes
#
# A mixture of two components has a posterior with two modes: the labels may be exchanged. A Markov chain stays in the mode where it began. `nvi.sample` comes from many
# independent draws, so it has both, with their shares.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import nestedvi as nvi

rng = np.random.default_rng(1)
y = np.where(rng.uniform(size=30) < 0.5, 2.5, -2.5) + rng.normal(size=30)


def mixture(y):
    a = numpyro.sample("a", dist.Normal(1.0, 5.0))
    b = numpyro.sample("b", dist.Normal(-1.0, 5.0))
    parts = dist.Normal(jnp.stack([a, b]), 1.0)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), parts), obs=y)


# %% [markdown]
# First NUTS, one chain:

# %%
chain = MCMC(NUTS(mixture), num_warmup=300, num_samples=500, progress_bar=False)
chain.run(jax.random.key(0), y)
draws = chain.get_samples()
print("share of draws with a > b:", np.mean(draws["a"] > draws["b"]))

# %% [markdown]
# The chain is in one mode only, and nothing in it says so. Now nestedvi. Discrete labels are summed out by `MixtureSameFamily`, since latent sites must be continuous.

# %%
posterior = nvi.sample(jax.random.key(1), mixture, model_args=(y,), method="smc")
print(posterior.summary())

# %% [markdown]
# The means of `a` and `b` mean little here: each is an average over two modes. A probability with its standard error says more. The priors differ slightly, and so do the shares of the modes.
# In two dimensions a grid gives the exact share:

# %%
axis = np.linspace(-6, 6, 401)
a, b = np.meshgrid(axis, axis, indexing="ij")
log_p = -0.5 * ((a - 1) / 5) ** 2 - 0.5 * ((b + 1) / 5) ** 2
for value in y:
    log_p += np.logaddexp(-0.5 * (value - a) ** 2, -0.5 * (value - b) ** 2)
p = np.exp(log_p - log_p.max())
found = posterior.expectation(lambda sites: sites["a"] > sites["b"])
print(
    f"share of a > b: {found.mean:.3f} ± {found.stderr:.3f}, exact {p[a > b].sum() / p.sum():.3f}"
)

# %%
posterior.plot()

# %% [markdown]
# `posterior.resample(key, 1000)` gives equally weighted draws, for whatever comes next. `posterior.report("report.html")` writes all of this, and how each batch came about, into one page.
#
# No method finds a mode that no particle ever came near. Two seeds that agree are better evidence than one, and the [diagnosis](../diagnosis.md) says what it can see.
