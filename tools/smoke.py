"""A little of everything, on whatever versions are installed: import, command line, training,
checkpoint, sampling a model, report. It needs nothing but the installed package.
"""

import importlib.metadata
import importlib.util
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import nestedvi as nvi


def coin(flips):
    p = numpyro.sample("p", dist.Beta(2.0, 1.5))
    numpyro.sample("x", dist.Bernoulli(p), obs=flips)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    package = Path(importlib.util.find_spec("nestedvi").origin).parent
    assert (package / "py.typed").exists(), "no type information in the package"
    for arguments in (["--version"], ["doctor"], ["methods"], ["sample", "--help"]):
        subprocess.run([sys.executable, "-m", "nestedvi", *arguments], check=True)

    initial = nvi.DiagonalNormal(jnp.zeros(2), 5.0)
    sampler, objective = nvi.build(
        jax.random.key(0), "nvir-star", target=nvi.targets.ring(), initial=initial, num_levels=3
    )
    options = {"num_steps": 20, "num_particles": 16, "checkpoint": folder / "training"}
    fit = nvi.fit(jax.random.key(1), sampler, objective, **options)
    assert nvi.fit(jax.random.key(1), sampler, objective, **options).num_steps == 20
    assert math.isfinite(nvi.evaluate(jax.random.key(2), fit.sampler, num_batches=5).log_Z)
    fit.report(folder / "training.html")

    flips = np.array([1, 0, 1, 1, 0, 1])
    exact = math.lgamma(6) + math.lgamma(3.5) - math.lgamma(9.5)
    exact -= math.lgamma(2) + math.lgamma(1.5) - math.lgamma(3.5)
    for method in ("auto", "smc"):
        posterior = nvi.sample(
            jax.random.key(3), coin, model_args=(flips,), method=method, num_particles=500
        )
        error = abs(posterior.log_Z - exact)
        assert error < 5 * posterior.log_Z_stderr + 0.01, (method, posterior.log_Z, exact)
    posterior.report(folder / "report.html")
    versions = {name: importlib.metadata.version(name) for name in ("jax", "equinox", "numpyro")}
    print("good with", ", ".join(f"{name} {version}" for name, version in versions.items()))


if __name__ == "__main__":
    main()
