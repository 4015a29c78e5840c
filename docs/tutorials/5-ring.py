"""A learned annealing path, step by step."""

# %% [markdown]
# # A learned annealing path, step by step
#
# The ring is the first example of the paper: eight Gaussian modes on a circle. A wide Gaussian at the origin has little in common with it. Between the two stands a path of densities,
# γ_k(z) = q_1(z)^{1−β_k} γ(z)^{β_k}, and a kernel at each step.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import nestedvi as nvi
from nestedvi.plot.figures import annealing_figure, draw_schedules

key_build, key_fit, key_run, key_judge = jax.random.split(jax.random.key(0), 4)
target = nvi.targets.ring()
initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
K = 8

# %% [markdown]
# ## The parts
#
# A forward kernel q_k moves particles from level k−1 to k. A reverse kernel r_{k−1} is the price of not computing an integral: it makes
#
# v_k = γ_k(z_k) r_{k−1}(z_{k−1} | z_k) / (γ_{k−1}(z_{k−1}) q_k(z_k | z_{k−1}))
#
# a proper weight, whatever r is; the better r is, the smaller is the variance. `nvi.build` puts all of it together for a row of the methods table. By hand it is:


# %%
def transition(key):
    key_forward, key_reverse = jax.random.split(key)
    return nvi.Transition(
        nvi.ResidualGaussian(2, key=key_forward), nvi.ResidualGaussian(2, key=key_reverse)
    )


def sampler_with(schedule):
    return nvi.NestedSampler(
        initial,
        nvi.Annealing(initial, target, schedule),
        nvi.Stacked(nvi.stack(key_build, transition, K - 1)),
        nvi.Resampling("systematic"),
    )


fixed, free = sampler_with(nvi.LinearSchedule(K)), sampler_with(nvi.LearnedSchedule(K))

# %% [markdown]
# ## The objective
#
# A divergence at every level: KL(π̂_k ‖ π̌_k) between what the kernel does, γ_{k−1} q_k, and what it should do, γ_k r_{k−1}. No gradient crosses from one level to the next. With a fixed path the kernels must bridge whatever gaps the temperatures leave. With
# "path" among the things to learn, each β moves to where the two neighbouring levels are easiest together.

# %%
kernels_only = nvi.fit(
    key_fit, fixed, nvi.Objective(learn=["forward", "reverse"]), num_steps=5_000, num_particles=36
)
everything = nvi.fit(
    key_fit,
    free,
    nvi.Objective(learn=["forward", "reverse", "path"]),
    num_steps=5_000,
    num_particles=36,
)

# %% [markdown]
# ## What was learned

# %%
for name, fit in {"linear path": kernels_only, "learned path": everything}.items():
    quality = nvi.evaluate(key_judge, fit.sampler)
    print(f"{name}: log Z = {quality.log_Z:.3f} ± {quality.log_Z_stderr:.3f}", end=", ")
    print(f"between {quality.lower_bound:.3f} and {quality.upper_bound:.3f}", end=", ")
    print(f"ESS {quality.ess_percent:.0f} %")
print(f"true: log 8 = {np.log(8):.3f}")

# %%
figure = Figure(figsize=(8, 3), layout="constrained")
left, right = figure.subplots(1, 2)
betas = {"linear": np.linspace(0, 1, K), "learned": everything.sampler.path.schedule.betas()}
draw_schedules(left, betas)
left.set_title("temperatures")
for (name, fit), colour in zip(
    {"linear": kernels_only, "learned": everything}.items(), ("#8a97a6", "#d1495b"), strict=True
):
    total = fit.record.level_divergence.sum(axis=1).reshape(-1, 50).mean(axis=1)
    right.plot(50 * np.arange(1, 101), total, color=colour, label=name)
right.set(xlabel="step", ylabel="Σ_k divergence", title="training", ylim=(0, None))
right.legend(frameon=False)
figure

# %% [markdown]
# The learned path stays at low temperatures for longer: that is where modes separate. Particles at every level, each as dark as its weight:

# %%
result = nvi.run(key_run, everything.sampler, 800, history=True)
levels = [
    (np.asarray(result.history.z[k]), np.exp(np.asarray(result.history.log_w[k]))) for k in range(K)
]
annealing_figure(levels, betas["learned"], limit=15)

# %% [markdown]
# [How it works](../how-it-works.md) derives the objective; [the annealing experiment](../annealing.md) has the paper's table.
