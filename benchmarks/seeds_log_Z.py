"""The reference log Z of the seeds target, by quadrature that shares nothing with the library.

Run as: python benchmarks/seeds_log_Z.py. Random effects are independent given the rest, so each is
an integral of one dimension, by the trapezoidal rule. Given the precision τ, the four coefficients
are nearly Gaussian: Gauss and Hermite's rule around the mode. log τ is left, by the trapezoidal
rule. Two resolutions tell the error; written to results/bench/.
"""

import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special, stats

from nestedvi.storage.files import output_folder, provenance, write_json
from nestedvi.targets.data import SEEDS

_OUT = Path(__file__).parent.parent / "results" / "bench"
_EFFECTS, _WIDEST = 400, 8.5
_LOW, _HIGH = -5.0, 9.0
_CHUNK = 512


def log_likelihood(a: jax.Array, log_tau: jax.Array) -> jax.Array:
    """log p(r | a, τ): every plate's random effect integrated out."""
    r, n, x1, x2 = (jnp.asarray(column, dtype=float) for column in SEEDS.T)
    effects = jnp.linspace(-_WIDEST, _WIDEST, _EFFECTS)
    log_prior = -0.5 * effects**2 - 0.5 * jnp.log(2 * jnp.pi) + jnp.log(effects[1] - effects[0])
    logits = a[0] + a[1] * x1 + a[2] * x2 + a[3] * x1 * x2
    logits = logits[:, None] + effects * jnp.exp(-0.5 * log_tau)
    seen = r[:, None] * logits - n[:, None] * jax.nn.softplus(logits)
    ways = np.log(special.binom(*SEEDS.T[[1, 0]])).sum()
    return jnp.sum(jax.nn.logsumexp(seen + log_prior, axis=1)) + ways


def log_joint(a: jax.Array, log_tau: jax.Array) -> jax.Array:
    """With the prior N(0, 10²) of the coefficients."""
    prior = jnp.sum(-0.5 * (a / 10) ** 2) - 4 * jnp.log(10 * jnp.sqrt(2 * jnp.pi))
    return log_likelihood(a, log_tau) + prior


def given_precision(log_tau: float, nodes: int) -> float:
    """log ∫ p(r, a | τ) da."""
    value = jax.jit(jax.value_and_grad(lambda a: -log_joint(a, log_tau)))
    start = np.array([-0.5, 0.1, 1.3, -0.8])
    mode = optimize.minimize(lambda a: [np.asarray(x) for x in value(a)], start, jac=True).x
    hessian = np.asarray(jax.hessian(lambda a: -log_joint(a, log_tau))(jnp.asarray(mode)))
    root = np.linalg.cholesky(np.linalg.inv(hessian))
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.array(list(itertools.product(x, repeat=4)))
    log_w = np.array([sum(each) for each in itertools.product(np.log(w), repeat=4)])
    points = jnp.asarray(mode + grid @ root.T)
    values = np.concatenate(
        [
            jax.vmap(lambda a: log_joint(a, log_tau))(points[i : i + _CHUNK])
            for i in range(0, len(points), _CHUNK)
        ]
    )
    log_jacobian = np.log(np.diag(root)).sum()
    return float(special.logsumexp(values + log_w + 0.5 * np.sum(grid**2, axis=1)) + log_jacobian)


def log_Z(nodes: int, precisions: int) -> float:
    """The whole integral, at a resolution."""
    grid = np.linspace(_LOW, _HIGH, precisions)
    prior = stats.gamma.logpdf(np.exp(grid), 0.01, scale=100) + grid
    values = [given_precision(log_tau, nodes) for log_tau in grid]
    return float(special.logsumexp(prior + values) + np.log(grid[1] - grid[0]))


def main() -> None:
    """Prints and writes log Z at two resolutions."""
    jax.config.update("jax_enable_x64", True)
    coarse, fine = log_Z(5, 43), log_Z(6, 85)
    row = {"log_Z": fine, "coarser": coarse, "source": "quadrature"}
    write_json(output_folder(_OUT) / "seeds-log-Z.json", {**row, **provenance(0)})
    print(f"log Z = {fine:.6f} (coarser: {coarse:.6f})")


if __name__ == "__main__":
    main()
