"""Amortised inference on many data sets."""

# %% [markdown]
# # Amortised inference on many data sets
#
# A *program* makes a sampler from one data set. `nvi.fit_amortised` trains the program over many data sets, so that a new one needs no training: its log Z and posterior come from one run of
# the sampler.
#
# Each data set here is a short series of counts with a slowly changing log rate: z_k ~ N(0.9 z_{k-1}, 0.5²), x_k ~ Poisson(exp(1 + z_k)).

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from matplotlib.figure import Figure

import nestedvi as nvi

STEPS, DECAY, STATE_NOISE = 20, 0.9, 0.5


class Counts(nvi.AbstractStateSpaceModel):
    def log_initial(self, z):
        return dist.Normal(0.0, 1.0).log_prob(z)

    def log_transition(self, z, z_prev):
        return dist.Normal(DECAY * z_prev, STATE_NOISE).log_prob(z)

    def log_observation(self, x, z):
        return dist.Poisson(jnp.exp(1.0 + z)).log_prob(x)


def simulate(key):
    def step(z, key):
        key_z, key_x = jax.random.split(key)
        x = jax.random.poisson(key_x, jnp.exp(1.0 + z))
        return DECAY * z + STATE_NOISE * jax.random.normal(key_z), x.astype(float)

    key_first, key_rest = jax.random.split(key)
    return jax.lax.scan(step, jax.random.normal(key_first), jax.random.split(key_rest, STEPS))[1]


series = jax.vmap(simulate)(jax.random.split(jax.random.key(0), 520))
train, test = series[:500], series[500:]

# %% [markdown]
# The program holds a small network: from the last state, the observation and the next one it makes the mean and the scale of the next state. Its arrays are what is learned. The same network serves every step and every
# data set.


# %%
class Proposal(eqx.Module):
    network: eqx.nn.MLP
    ahead: jax.Array

    def __call__(self, z, context):
        k = context.theta.k
        x, x_next = context.theta.x, self.ahead[jnp.minimum(k, STEPS - 1)]
        inputs = jnp.stack([z, jnp.log1p(x), jnp.log1p(x_next), (k < STEPS).astype(z.dtype)])
        shift, log_scale = self.network(inputs)
        return dist.Normal(DECAY * z + shift, STATE_NOISE * jnp.exp(jnp.clip(log_scale, -4.0, 2.0)))


class Program(eqx.Module):
    network: eqx.nn.MLP

    def __call__(self, xs):
        proposal = Proposal(self.network, jax.lax.stop_gradient(xs))
        move = nvi.Transition(nvi.DistributionKernel(proposal, reparameterised=True))
        return nvi.NestedSampler(
            dist.Normal(0.0, 1.0),
            nvi.StateSpace(Counts(), xs),
            nvi.Shared(move, STEPS - 1),
            nvi.Resampling("systematic", when=0.5),
        )


network = eqx.nn.MLP(4, 2, 32, 2, activation=jax.nn.tanh, key=jax.random.key(1))
# The last layer starts at zero: the untrained proposal is the model's own transition.
last = network.layers[-1]
network = eqx.tree_at(
    lambda n: (n.layers[-1].weight, n.layers[-1].bias),
    network,
    (jnp.zeros_like(last.weight), jnp.zeros_like(last.bias)),
)
untrained = Program(network)

# %% [markdown]
# Forward KL with the weights of the particles suits a proposal: it must cover where the posterior has mass.

# %%
fit = nvi.fit_amortised(
    jax.random.key(2),
    untrained,
    train,
    nvi.Objective("forward-kl", learn="forward"),
    num_steps=1_000,
    num_particles=50,
    batch_size=16,
    optimiser=optax.adam(3e-3),
)
print("instances left out because a gradient was not finite:", int(np.sum(fit.dropped)))

# %% [markdown]
# Twenty series that it has never seen. A run with very many particles is the reference.

# %%
reference = nvi.evaluate_instances(jax.random.key(3), fit.program, test, num_particles=20_000)
errors = {}
for name, program in {"model's transition": untrained, "learned": fit.program}.items():
    runs = [
        nvi.evaluate_instances(jax.random.key(10 + i), program, test, num_particles=20).log_Z_hat
        for i in range(20)
    ]
    errors[name] = np.stack(runs) - reference.log_Z_hat
    rms = np.sqrt(np.mean(errors[name] ** 2))
    print(f"{name}: error of log Z with 20 particles, root mean square {rms:.3f}")

# %%
figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
for shift, (name, error) in zip((-0.15, 0.15), errors.items(), strict=True):
    axes.errorbar(
        np.arange(1, 21) + shift, error.mean(axis=0), error.std(axis=0), fmt="o", ms=3, label=name
    )
axes.axhline(0, color="0.6", lw=1)
axes.legend(frameon=False)
axes.set_xticks(range(1, 21))
axes.set(
    xlabel="test series", ylabel="error of log Ẑ", title="20 particles: mean ± spread of 20 runs"
)
figure

# %% [markdown]
# A mean below zero is no bias of Ẑ: the mean of log Ẑ is below log Z by Jensen's inequality, and the closer the better the proposal is.
#
# For one sampler and one data set, `nvi.fit` is enough. For variables that all steps share, see [the guide](../guide.md#learning-from-many-data-sets).
