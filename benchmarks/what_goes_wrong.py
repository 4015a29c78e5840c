"""Answers that are wrong or doubtful on purpose, and what the library says of each.

    python benchmarks/what_goes_wrong.py --out results/bench

docs/what-the-numbers-mean.md quotes the file that this writes.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import constraints

import nestedvi as nvi
from nestedvi.storage.files import output_folder, provenance, write_json


class Case(NamedTuple):
    """What is asked, the true log Z where there is one, and why it should go wrong."""

    why: str
    truth: float | None
    ask: Callable[[Any], Any]


def _normal(z, mean, scale):
    return jnp.sum(-0.5 * ((z - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * np.log(2 * np.pi))


def _far_apart(z):
    """Half of the mass is where no search looks: a narrow normal, 10 000 of its widths away."""
    return jnp.logaddexp(_normal(z, 0.0, 1.0), _normal(z, 1e3, 0.1)) - jnp.log(2.0)


def _flat(x, y):
    slope = numpyro.sample("slope", dist.ImproperUniform(constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


_X = np.linspace(-1, 1, 20)

CASES = {
    "a normal": Case(
        "nothing is wrong",
        0.0,
        lambda key: nvi.sample(key, lambda z: _normal(z, 1.0, 0.5), dim=3),
    ),
    "a mode that nobody visits": Case(
        "half of the mass is far away and narrow",
        0.0,
        lambda key: nvi.sample(key, _far_apart, dim=2),
    ),
    "an improper prior": Case(
        "the posterior is fine, its log Z has an arbitrary constant",
        None,
        lambda key: nvi.sample(key, _flat, model_args=(_X, 2 * _X)),
    ),
    "an improper posterior": Case(
        "only the difference of two coordinates is known",
        None,
        lambda key: nvi.sample(key, lambda z: -0.5 * (z[0] - z[1]) ** 2, dim=2),
    ),
    "a density that is NaN": Case(
        "the logarithm of a negative number",
        None,
        lambda key: nvi.sample(key, lambda z: jnp.log(-1.0 - z[0] ** 2), dim=1),
    ),
    "a large constant": Case(
        "single precision has seven digits",
        3e6,
        lambda key: nvi.sample(key, lambda z: _normal(z, 0.0, 1.0) + 3e6, dim=2),
    ),
    "a funnel without learning": Case(
        "all batches miss the neck alike",
        0.0,
        lambda key: nvi.sample(key, nvi.targets.Funnel(), dim=10, method="smc"),
    ),
    "a sampler that was not trained": Case(
        "ten steps of training are too few",
        float(np.log(8)),
        lambda key: nvi.sample(
            key, nvi.targets.ring(), dim=2, method="nvi", num_steps=10, num_particles=400
        ),
    ),
}


def run_case(name: str, seed: int) -> dict[str, Any]:
    """The answer's own words and numbers, or the sentence of its refusal."""
    case = CASES[name]
    row = {"case": name, "why": case.why, "truth": case.truth}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = case.ask(jax.random.key(seed))
    except Exception as error:
        return {**row, "refused": f"{type(error).__name__}: {error}"}
    names = ("log_Z", "log_Z_stderr", "ess", "khat")
    return {
        **row,
        **{each: getattr(found, each) for each in names},
        "particles": len(found.log_weights),
        "diagnosis": list(found.diagnosis),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="results/bench")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows = []
    for name in CASES:
        rows.append(run_case(name, args.seed))
        print(rows[-1], flush=True)
        content = {"rows": rows, **provenance(args.seed)}
        write_json(output_folder(args.out) / "what-goes-wrong.json", content)


if __name__ == "__main__":
    main()
