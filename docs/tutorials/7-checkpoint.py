"""A long run with a checkpoint, on a CPU or a GPU."""

# %% [markdown]
# # A long run with a checkpoint, on a CPU or a GPU
#
# A long training should survive an interrupt, a crash and a change of machine. `nvi.fit(..., checkpoint="folder")` saves every minute, at the end and on Ctrl-C. The same call goes on from there, and ends in the same bits as if
# it had never stopped. Nothing in this page is special to a GPU: with `pip install 'nestedvi[cuda]'` the same script runs there.

# %%
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import nestedvi as nvi

print(jax.devices()[0].platform)

# %% [markdown]
# Sixteen levels on a target of forty modes. Levels of a training step run in one of three orders. `sequential` needs the least memory and suits a CPU. `level-parallel` advances all levels at once: on a GPU its step
# takes as long for 128 levels as for 8 ([measured](../benchmarks.md)).

# %%
order = "sequential" if jax.devices()[0].platform == "cpu" else "level-parallel"
sampler, objective = nvi.build(
    jax.random.key(0),
    "nvir-star",
    target=nvi.targets.gmm40(),
    initial=nvi.DiagonalNormal(jnp.zeros(2), 30.0),
    num_levels=16,
)


class StopAt:
    """Stands for Ctrl-C, or a machine that is taken away, in the middle of a training."""

    def __init__(self, step):
        self.step = step

    def start(self, total, done):
        print(f"starts at step {done} of {total}")

    def update(self, done, **measures):
        if done >= self.step:
            raise KeyboardInterrupt

    def stop(self):
        pass


def train(folder, progress):
    return nvi.fit(
        jax.random.key(1),
        sampler,
        objective,
        num_steps=1_500,
        num_particles=32,
        order=order,
        checkpoint=folder,
        progress=progress,
    )


# %% [markdown]
# The first call is stopped on its way. A progress display is any object with `start`, `update` and `stop`; `progress=True` is a bar.

# %%
folder = Path(tempfile.mkdtemp()) / "training"
try:
    train(folder, StopAt(700))
except KeyboardInterrupt:
    print("interrupted")

# %% [markdown]
# The same call again goes on where it stopped:

# %%
resumed = train(folder, StopAt(10_000))

# %% [markdown]
# And a training that was never stopped ends in the same bits, because every step's randomness comes from the key and the number of the step alone:

# %%
straight = train(None, StopAt(10_000))
pairs = zip(jax.tree.leaves(resumed.sampler), jax.tree.leaves(straight.sampler), strict=True)
print("same bits:", all(np.array_equal(a, b) for a, b in pairs if isinstance(a, jax.Array)))

# %% [markdown]
# A checkpoint belongs to its training. A folder of another one is refused, not overwritten:

# %%
try:
    nvi.fit(
        jax.random.key(2), sampler, objective, num_steps=10, num_particles=32, checkpoint=folder
    )
except nvi.errors.CheckpointError as error:
    print(type(error).__name__)

# %% [markdown]
# For long runs it also helps to know:
#
# - `restarts=10` trains ten samplers side by side, which is what a GPU has room for; build them with `nvi.stack(key, make, 10)` and take one out with `nvi.restart(sampler, i)`.
# - `nvi.sample(..., cache=True)` keeps compiled programs on disk, so that the next process does not compile them again.
# - `fit.report("training.html")` shows what every level did from step to step. `nestedvi doctor` says which devices JAX sees.
