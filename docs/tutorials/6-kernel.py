"""Writing a kernel."""

# %% [markdown]
# # Writing a kernel
#
# A kernel is a conditional density q(z' | z) for one particle: it draws, and it scores. The library adds the particle axis, differentiates, and keeps weights proper. Here a kernel with heavy tails, Student's t, because a Gaussian one cannot reach a target
# whose tails are heavier than its own.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from matplotlib.figure import Figure

import nestedvi as nvi


class StudentStep(nvi.AbstractKernel):
    """q(z' | z): z' = a z + b + scale · ε with ε ~ t(ν), coordinate by coordinate."""

    slope: jax.Array
    offset: jax.Array
    log_scale: jax.Array
    freedom: float = eqx.field(static=True)

    @property
    def reparameterised(self):
        return True

    def _noise(self, z):
        loc = self.slope * z + self.offset
        return dist.StudentT(self.freedom, loc, jnp.exp(self.log_scale))

    def sample(self, key, z, context):
        return self._noise(z).sample(key)

    def log_prob(self, z_new, z, context):
        return jnp.sum(self._noise(z).log_prob(z_new))


# %% [markdown]
# - Parameters are stored so that an optimiser may move them anywhere: a log scale, not a scale.
# - Every array is learned; `freedom` is static, so it is not.
# - `reparameterised` says that a draw carries the gradient of the parameters. A kernel that cannot promise that returns False and gives `log_prob_score`; the library refuses to train one that gives neither, because
#   its gradient would silently be zero.
#
# Two properties must hold, whatever the kernel is for: it is normalised, and draws follow the density.

# %%
kernel = StudentStep(jnp.array([0.5]), jnp.array([0.2]), jnp.array([-0.3]), freedom=4.0)
z, nothing = jnp.array([1.0]), nvi.kernels.Context(None, None)
grid = jnp.linspace(-60, 60, 200_001)
density = jnp.exp(jax.vmap(lambda x: kernel.log_prob(x[None], z, nothing))(grid))
draws = jax.vmap(lambda key: kernel.sample(key, z, nothing))(
    jax.random.split(jax.random.key(0), 20_000)
)
inside = (grid > 0) & (grid < 1)
print(f"mass {np.trapezoid(density, grid):.5f}")
print(f"mass in (0, 1): {np.trapezoid(density[inside], grid[inside]):.3f}", end=", ")
print(f"draws there: {np.mean((draws > 0) & (draws < 1)):.3f}")

# %% [markdown]
# Now it goes into a sampler. The target has Student tails of its own; a pair of kernels, forward and reverse, leads to it from a Gaussian. The same with Gaussian kernels, for comparison:

# %%
start = nvi.DiagonalNormal(jnp.zeros(1), 1.0)
target = nvi.Density(lambda z: jnp.sum(dist.StudentT(3.0, 4.0, 1.0).log_prob(z)))


def student(key):
    return StudentStep(jnp.ones(1), jnp.zeros(1), jnp.zeros(1), freedom=3.0)


def gaussian(key):
    return nvi.kernels.GaussianKernel(jnp.ones(1), jnp.zeros(1), jnp.zeros(1))


quality = {}
for name, make in {"student": student, "gaussian": gaussian}.items():
    key_f, key_r, key_fit, key_judge = jax.random.split(jax.random.key(1), 4)
    sampler = nvi.compose(
        nvi.propose(start, start),
        nvi.propose((make(key_f), gaussian(key_r)), target),
    )
    fit = nvi.fit(key_fit, sampler, nvi.Objective(), num_steps=3_000, num_particles=64)
    result = nvi.run(key_judge, fit.sampler, 20_000)
    khat = nvi.khat(result.particles.log_w)
    quality[name] = np.asarray(result.particles.log_w)
    print(
        f"{name}: log Z = {result.log_Z_hat:.4f} (true 0), ESS {result.ess / 200:.0f} %, k̂ = {khat:.2f}"
    )

# %% [markdown]
# k̂ is the tail of the weights: above 0.7 neither log Ẑ nor its standard error can be trusted. With Gaussian kernels the weights of far particles grow without bound.

# %%
figure = Figure(figsize=(6, 3), layout="constrained")
axes = figure.subplots()
for name, log_w in quality.items():
    axes.hist(log_w, bins=np.linspace(-4, 8, 120), histtype="step", label=name, log=True)
axes.legend(frameon=False)
axes.set(xlabel="log weight", ylabel="particles", title="weights for a target with heavy tails")
figure

# %% [markdown]
# To add the kernel to the library itself, with the contracts that every kernel keeps, follow [adding a part](../adding-a-part.md#a-kernel).
