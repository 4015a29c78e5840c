"""Evidence for choosing a model."""

# %% [markdown]
# # Evidence for choosing a model
#
# The evidence p(y | model) is the probability that a model gave the data before it saw them. A model that can explain everything spreads its prior over many data
# sets, so it is not preferred only because it fits. The difference of two log evidences is a log Bayes factor.
#
# The data here are a curve with noise. Is it a line, a parabola or a cubic? The noise is unknown too.

# %%
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib.figure import Figure

import nestedvi as nvi

x = np.linspace(-1.0, 1.0, 25)
y = 0.3 + 0.8 * x - 0.9 * x**2 + 0.3 * np.random.default_rng(2).normal(size=25)


def polynomial(features, y=None):
    weights = numpyro.sample(
        "weights", dist.Normal(0.0, 1.0).expand([features.shape[1]]).to_event(1)
    )
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(features @ weights, noise), obs=y)


# %% [markdown]
# One call for each degree. A model of another shape is another program to compile; a second data set of the same shape would not be.

# %%
posteriors = {}
for degree in (1, 2, 3):
    features = np.vander(x, degree + 1, increasing=True)
    posteriors[degree] = nvi.sample(
        jax.random.key(degree), polynomial, model_args=(features, y), method="smc"
    )
    posterior = posteriors[degree]
    print(f"degree {degree}: log Z = {posterior.log_Z:.3f} ± {posterior.log_Z_stderr:.3f}")
    assert not posterior.diagnosis

# %% [markdown]
# The standard errors are far smaller than the differences, so the order is certain as far as the sampler is concerned. With equal prior probabilities the
# evidences become probabilities of the models:

# %%
log_Z = np.array([posteriors[degree].log_Z for degree in (1, 2, 3)])
probability = np.exp(log_Z - np.logaddexp.reduce(log_Z))
for degree, p in zip((1, 2, 3), probability, strict=True):
    print(f"degree {degree}: probability {p:.3f}")

# %% [markdown]
# The cubic contains the parabola and fits at least as well. It is less probable, because its prior also covers curves that these data rule out. That is what the evidence
# adds to a fit. It depends on the prior for the same reason: widen the prior of the weights, and every extra weight costs more.

# %%
figure = Figure(figsize=(7, 3.2), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=[2, 1])
grid = np.linspace(-1, 1, 100)
left.plot(x, y, "o", color="0.4")
for degree, colour in zip((1, 2, 3), ("#8a97a6", "#d1495b", "#1f3b57"), strict=True):
    mean, _ = posteriors[degree].expectation(lambda sites: sites["weights"])
    left.plot(
        grid, np.vander(grid, degree + 1, increasing=True) @ mean, color=colour, label=str(degree)
    )
left.legend(title="degree", frameon=False)
left.set(xlabel="x", ylabel="y", xticks=[-1, 0, 1], title="posterior mean curves")
right.bar(["1", "2", "3"], probability, color="#1f3b57")
right.set(xlabel="degree", title="probability of the model")
figure

# %% [markdown]
# An average over the models weights what each says by these probabilities: here the value of the curve at x = 0.5.

# %%
values = [
    float(
        posteriors[d].expectation(lambda sites: sites["weights"] @ (0.5 ** np.arange(d + 1))).mean
    )
    for d in (1, 2, 3)
]
print("by degree:", np.round(values, 3), " averaged:", round(float(probability @ values), 3))
