"""A state-space model with a learned proposal and heuristic."""

# %% [markdown]
# # A state-space model with a learned proposal and heuristic
#
# A particle filter is a nested importance sampler whose particle grows by one state at each level. Two things can be learned. The *proposal* q(z_k | z_{k-1}, x_k) says where the next state is drawn. The
# *heuristic* ψ_k(z_k) stands for the likelihood of what is still to come, p(x_{k+1:K} | z_k), so that particles with no future are dropped early.
#
# The model is a random walk that is observed rarely and precisely: only every fifth observation says much. A filter without foresight walks at random for four steps and is surprised at the fifth.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from matplotlib.figure import Figure

import nestedvi as nvi

STEPS = 30
NOISE = jnp.where(jnp.arange(STEPS) % 5 == 4, 0.1, 5.0)


class Walk(nvi.AbstractStateSpaceModel):
    """z_k ~ N(z_{k-1}, 1); an observation is a pair (value, its noise)."""

    def log_initial(self, z):
        return dist.Normal(0.0, 1.0).log_prob(z)

    def log_transition(self, z, z_prev):
        return dist.Normal(z_prev, 1.0).log_prob(z)

    def log_observation(self, x, z):
        value, noise = x
        return dist.Normal(z, noise).log_prob(value)


rng = np.random.default_rng(3)
states = np.cumsum(rng.normal(size=STEPS))
values = jnp.asarray(states + np.asarray(NOISE) * rng.normal(size=STEPS), jnp.float32)
xs = (values, NOISE)

# %% [markdown]
# The model is linear and Gaussian, so the Kalman filter gives the exact log Z to compare with.


# %%
def kalman():
    mean, variance, total = 0.0, 1.0, 0.0
    for value, noise in zip(np.asarray(values), np.asarray(NOISE), strict=True):
        spread = variance + noise**2
        total += -0.5 * (np.log(2 * np.pi * spread) + (value - mean) ** 2 / spread)
        gain = variance / spread
        mean, variance = mean + gain * (value - mean), (1 - gain) * variance + 1.0
    return total


print(f"exact log Z = {kalman():.3f}")


# %% [markdown]
# The bootstrap filter proposes from the model itself. It needs no reverse kernel, because the particle grows.


# %%
def sampler_with(proposal, heuristic=None):
    move = nvi.Transition(nvi.DistributionKernel(proposal, reparameterised=True))
    path = nvi.StateSpace(Walk(), xs, heuristic)
    rule = nvi.Resampling("systematic", when=0.5)
    return nvi.NestedSampler(dist.Normal(0.0, 1.0), path, nvi.Shared(move, STEPS - 1), rule)


def judge(name, sampler):
    quality = nvi.evaluate(jax.random.key(1), sampler, num_particles=100, num_batches=50)
    print(f"{name}: log Z = {quality.log_Z:.3f} ± {quality.log_Z_stderr:.3f}", end=", ")
    print(
        f"lower bound {quality.lower_bound:.3f}, smallest ESS {quality.level_ess.min():.0f} of 100"
    )
    return quality


bootstrap = judge("bootstrap", sampler_with(lambda z, context: dist.Normal(z, 1.0)))

# %% [markdown]
# Now the learned parts. The heuristic has a place and a width for every step: ψ_k(z) = exp(−½ ((z − m_k)/s_k)²). `messages` sees all observations once and leaves one message a step; `log_psi` reads
# the message of its step. The proposal is a Gaussian whose mean is linear in the last state, with numbers of its own for every step; the step k is in the level's context. In this model the best
# proposal and the best heuristic have exactly these forms, so only the first state, which is drawn from the prior, keeps a trained sampler from being perfect.


# %%
class Places(nvi.paths.AbstractHeuristic):
    place: jax.Array
    log_width: jax.Array

    def messages(self, eta, observations):
        return nvi.paths.Messages((self.place, self.log_width))

    def log_psi(self, message, z):
        place, log_width = message
        return -0.5 * ((z - place) * jnp.exp(-log_width)) ** 2


class Linear(eqx.Module):
    """z_k ~ N(z_{k-1} + a_k − b_k z_{k-1}, s_k²)."""

    offset: jax.Array
    pull: jax.Array
    log_scale: jax.Array

    def __call__(self, z, context):
        k = context.theta.k - 1
        mean = z + self.offset[k] - self.pull[k] * z
        return dist.Normal(mean, jnp.exp(self.log_scale[k]))


zeros = jnp.zeros(STEPS)
untrained = sampler_with(Linear(zeros, zeros, zeros), Places(zeros, zeros + 3.0))

# %% [markdown]
# The objective is the paper's: a reverse KL divergence at every level, over the proposals ("forward") and the heuristics ("path").

# %%
objective = nvi.Objective("reverse-kl", learn=["forward", "path"])
fit = nvi.fit(
    jax.random.key(2),
    untrained,
    objective,
    num_steps=6_000,
    num_particles=50,
    optimiser=optax.adam(optax.cosine_decay_schedule(3e-2, 6_000)),
)
learned = judge("learned", fit.sampler)

# %% [markdown]
# Log Ẑ is now nearly the same in every batch: look at its lower bound, the mean of log Ẑ over batches, and at the smallest ESS. The heuristic learned to look ahead. Its places m_k are close to the next precise observation, and its
# widths grow with the number of steps until then. At a precise observation itself the state is known already, so any width will do there:

# %%
heuristic = fit.sampler.path.heuristic
figure = Figure(figsize=(8, 3.2), layout="constrained")
left, right = figure.subplots(1, 2)
k = np.arange(1, STEPS + 1)
left.plot(k, states, color="0.5", label="states")
precise = np.asarray(NOISE) < 1
left.plot(
    k[precise], np.asarray(values)[precise], "o", color="#d1495b", label="precise observations"
)
left.errorbar(
    k[:-1],
    heuristic.place[:-1],
    np.exp(heuristic.log_width[:-1]),
    fmt=".",
    color="#1f3b57",
    label="ψ",
)
left.legend(frameon=False, fontsize=8)
left.set(xlabel="step k", ylabel="z", title="learned heuristics: place ± width")
left.set_ylim(states.min() - 4, states.max() + 4)
right.plot(k, bootstrap.level_ess, color="#8a97a6", label="bootstrap")
right.plot(k, learned.level_ess, color="#1f3b57", label="learned")
right.legend(frameon=False)
right.set(xlabel="step k", ylabel="ESS of 100", ylim=(0, 103), title="ESS of every level")
figure

# %% [markdown]
# `fit.report("training.html")` shows how each level's divergence fell. The [hidden Markov model](../hmm.md) of the paper learns heuristics from data that it has not seen, by
# a network; the next tutorial trains over many data sets.
