"""How it works: from importance sampling to learned levels."""

# %% [markdown]
# # How it works
#
# From importance sampling to learned levels, in five steps. Each equation stands beside the code that holds it. The target is one-dimensional, so that everything can be drawn: two narrow modes of equal mass, and log Z = 0.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import nestedvi as nvi

INK, ACCENT, QUIET = "#1f3b57", "#d1495b", "#8a97a6"
target = nvi.densities.GaussianMixture([[-4.0], [4.0]], variance=0.1, weights=[0.5, 0.5])
base = nvi.DiagonalNormal(jnp.zeros(1), 1.5)
grid = jnp.linspace(-7, 7, 701)[:, None]


def curve(log_gamma):
    """A density on the grid, normalised there."""
    values = np.exp(np.asarray(jax.vmap(log_gamma)(grid)))
    return values / (values.sum() * 0.02)


# %% [markdown]
# ## 1. Importance sampling
#
# Draw z ~ q_1 and weigh each draw by w = γ(z)/q_1(z). The mean weight estimates Z without bias, for any q_1 that covers γ.
#
# | equation | code |
# |---|---|
# | log Ẑ = log (1/S) Σ w | `nvi.log_Z_hat`, in `particles/weights.py` |
# | ESS = (Σ w)² / Σ w² | `nvi.ess`, in `particles/weights.py` |
#
# Unbiased does not mean good. Where q_1 seldom draws and γ has its mass, most weights are nearly zero and a few are huge.

# %%
z = base.sample_many(jax.random.key(0), 1000)
log_w = jax.vmap(lambda x: target.log_gamma(x) - base.log_gamma(x))(z)
print(f"log Ẑ = {nvi.log_Z_hat(log_w):.2f} (true 0), ESS {nvi.ess(log_w):.0f} of 1000")

# %%
figure = Figure(figsize=(8, 2.8), layout="constrained")
left, right = figure.subplots(1, 2)
left.plot(grid, curve(base.log_gamma), color=QUIET, label="q₁")
left.plot(grid, curve(target.log_gamma), color=ACCENT, label="π")
left.set(title="proposal and target", xlabel="z", yticks=[])
left.legend(frameon=False)
right.stem(z[:, 0], np.exp(log_w), markerfmt=".", linefmt=INK, basefmt=" ")
right.set(title="weights of 1000 draws", xlabel="z", ylabel="w", xlim=(-7, 7))
figure

# %% [markdown]
# ## 2. Levels in between
#
# Put densities between q_1 and γ, each close to its neighbours, and move particles from one to the next by a kernel q_k(z_k | z_{k−1}). The weight of a move would need the density of z_k with z_{k−1} integrated out. A *reverse kernel*
# r_{k−1}(z_{k−1} | z_k) avoids the integral: for any r the weight below is proper, and the better r is, the less it varies.
#
# | equation | code |
# |---|---|
# | γ_k = q_1^{1−β_k} γ^{β_k} | `nvi.Annealing`, in `paths/annealing.py` |
# | v_k = γ_k(z_k) r_{k−1}(z_{k−1} given z_k) / γ_{k−1}(z_{k−1}) q_k(z_k given z_{k−1}) | `weigh`, in `sampler/level.py` |
# | w_k = v_k w_{k−1} | `outgoing`, in `sampler/level.py` |
#
# Each density is proposed from the sampler for the one before it: the samplers are *nested*.

# %%
K = 5
linear = nvi.Annealing(base, target, nvi.LinearSchedule(K))


def transition(key):
    key_forward, key_reverse = jax.random.split(key)
    return nvi.Transition(
        nvi.ResidualGaussian(1, key=key_forward, scale=0.5),
        nvi.ResidualGaussian(1, key=key_reverse, scale=0.5),
    )


def sampler_on(path, rule):
    moves = nvi.Stacked(nvi.stack(jax.random.key(1), transition, K - 1))
    return nvi.NestedSampler(base, path, moves, rule)


def judge(name, sampler):
    quality = nvi.evaluate(jax.random.key(2), sampler, num_particles=200, num_batches=50)
    print(f"{name}: log Z = {quality.log_Z:.3f} ± {quality.log_Z_stderr:.3f}", end=", ")
    print(f"mean log Ẑ {quality.lower_bound:.3f}, ESS {quality.ess_percent:.0f} %")
    return quality


never, always = nvi.Resampling(when="never"), nvi.Resampling("systematic")
untrained = judge("untrained kernels", sampler_on(linear, never))

# %% [markdown]
# Kernels that only add noise do not help yet. They have to be learned.
#
# ## 3. A divergence at every level
#
# Level k is good if what the kernel does, π̂_k ∝ γ_{k−1}(z_{k−1}) q_k(z_k | z_{k−1}), is close to what it should do, π̌_k ∝ γ_k(z_k) r_{k−1}(z_{k−1} | z_k). The objective is the sum over levels of a divergence between the two.
# The log ratio of the two is log v_k up to a constant, so everything that is needed is already there.
#
# | equation | code |
# |---|---|
# | Σ_k D_f(π̌_k ‖ π̂_k), f(w) = −log w for reverse KL | `nvi.Objective`, in `train/objective.py`; `nvi.ReverseKL`, in `divergences/f.py` |
# | its gradient for q_k, r_{k−1}, γ_k and γ_{k−1} as that of one scalar | `surrogate`, in `divergences/surrogate.py` |
#
# Expectations under π̂_k use the weighted particles of level k − 1. No gradient crosses from one level to the next, so memory does not grow with K, and levels can be trained side by side.

# %%
fit = nvi.fit(
    jax.random.key(3),
    sampler_on(linear, never),
    nvi.Objective("reverse-kl", learn=["forward", "reverse"]),
    num_steps=3_000,
    num_particles=64,
)
kernels = judge("learned kernels", fit.sampler)

# %% [markdown]
# ## 4. Resampling
#
# Weights multiply over levels, and after some levels few particles carry them all. Resampling draws ancestors in proportion to their weights, and each level then learns from particles that are about equally good. Ẑ stays unbiased.
#
# | equation | code |
# |---|---|
# | a_s ~ Discrete(w̄), then w = mean weight | `nvi.Resampling`, in `particles/resampling.py` |

# %%
fit = nvi.fit(
    jax.random.key(3),
    sampler_on(linear, always),
    nvi.Objective("reverse-kl", learn=["forward", "reverse"]),
    num_steps=3_000,
    num_particles=64,
)
resampled = judge("and resampling", fit.sampler)

# %% [markdown]
# ## 5. Learned densities
#
# The densities in between are a choice too. Only the last one is given. With "path" among the things to learn, β_k moves to where the divergences on both of its sides are smallest together.
#
# | equation | code |
# |---|---|
# | β_k = Σ_{j<k} softmax(logits)_j | `nvi.LearnedSchedule`, in `paths/schedules.py` |
# | gradient of γ_k: from level k, where it is the target, and from level k + 1, where it is the proposal | `train/step_gradient.py` |

# %%
free = nvi.Annealing(base, target, nvi.LearnedSchedule(K))
fit = nvi.fit(
    jax.random.key(3),
    sampler_on(free, always),
    nvi.Objective("reverse-kl", learn=["forward", "reverse", "path"]),
    num_steps=3_000,
    num_particles=64,
)
learned = judge("and a learned path", fit.sampler)
betas = fit.sampler.path.schedule.betas()
print("β =", np.round(np.asarray(betas), 3))

# %%
figure = Figure(figsize=(8, 5), layout="constrained")
(a, b), (c, d) = figure.subplots(2, 2)
for axes, values, title in ((a, np.linspace(0, 1, K), "linear path"), (b, betas, "learned path")):
    for k, beta in enumerate(values):
        shade = (0.12 + 0.22 * k, 0.23, 0.34)
        axes.plot(grid, curve(lambda x: free.log_density(beta, free.stats(x))), color=shade, lw=1)
    axes.set(title=title, xlabel="z", yticks=[])
levels = np.arange(1, K + 1)
for quality, name, colour in (
    (kernels, "kernels", QUIET),
    (resampled, "and resampling", INK),
    (learned, "and path", ACCENT),
):
    c.plot(levels, quality.level_ess / 2, "o-", ms=3, color=colour, label=name)
    d.plot(levels, quality.level_kl_reverse, "o-", ms=3, color=colour, label=name)
c.set(title="ESS of every level, %", xlabel="level k", ylim=(0, 103))
d.set(title="divergence of every level", xlabel="level k")
d.legend(frameon=False)
figure

# %% [markdown]
# ## What `nvi.sample` does with it
#
# `nvi.sample` needs an answer for any model without training networks for minutes. It learns the first density q_1, which matters most, from particles, and moves them by kernels that leave γ_k invariant: the divergence of a level is then that of neighbouring
# densities. [How `auto` works](auto.md) describes it. Rows of `nestedvi methods` are other choices of the same parts; [known methods](known-methods.md) says which choice is which method.
#
# [Design](design.md) has the rest: how gradients flow, orders of execution, global variables.
