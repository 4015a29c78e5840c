"""The reference log Z of the breast-cancer target, by importance sampling that shares nothing with
the library's samplers.

Run as: python benchmarks/breast_cancer_log_Z.py (needs the extra `targets`). A multivariate t at
the mode with the Hessian's width, refitted to its own weighted draws a few times, then many draws
from the last one; written to results/bench/.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, stats

from nestedvi.particles.weights import ess, khat, log_Z_hat, normalise
from nestedvi.storage.files import output_folder, provenance, write_json
from nestedvi.targets import get_target

_OUT = Path(__file__).parent.parent / "results" / "bench"
_FREEDOM, _CHUNK = 20, 10_000
_ROUNDS, _TO_FIT, _DRAWS = 4, 200_000, 4_000_000


def weighted_draws(
    rng: np.random.Generator, log_gamma, mean, cov, num: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the t, and log γ − log t."""
    proposal = stats.multivariate_t(mean, cov, df=_FREEDOM, seed=rng)
    z = np.atleast_2d(proposal.rvs(num))
    return z, np.asarray(log_gamma(jnp.asarray(z))) - proposal.logpdf(z)


def main() -> None:
    """Prints and writes log Z, its standard error, and how even the weights were."""
    jax.config.update("jax_enable_x64", True)
    target = get_target("breast-cancer")
    density, rng = target.build(), np.random.default_rng(0)
    log_gamma = jax.jit(jax.vmap(density.log_gamma))
    value = jax.jit(jax.value_and_grad(lambda z: -density.log_gamma(z)))
    mode = optimize.minimize(
        lambda z: [np.asarray(x) for x in value(z)], np.zeros(target.dim), jac=True
    ).x
    mean, cov = mode, np.linalg.inv(-np.asarray(jax.hessian(density.log_gamma)(jnp.asarray(mode))))
    for _ in range(_ROUNDS):
        chunks = [
            weighted_draws(rng, log_gamma, mean, cov, _CHUNK) for _ in range(_TO_FIT // _CHUNK)
        ]
        z, log_w = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
        weights = np.asarray(normalise(log_w))
        mean = np.average(z, axis=0, weights=weights)
        cov = np.cov(z.T, aweights=weights) * (_FREEDOM - 2) / _FREEDOM
    log_w = np.concatenate(
        [weighted_draws(rng, log_gamma, mean, cov, _CHUNK)[1] for _ in range(_DRAWS // _CHUNK)]
    )
    size = float(ess(log_w))
    row = {
        "log_Z": float(log_Z_hat(log_w)),
        "stderr": float(np.sqrt(1 / size - 1 / _DRAWS)),
        "ess_percent": 100 * size / _DRAWS,
        "khat": khat(log_w),
        "draws": _DRAWS,
    }
    write_json(output_folder(_OUT) / "breast-cancer-log-Z.json", {**row, **provenance(0)})
    print(
        f"log Z = {row['log_Z']:.4f} ± {row['stderr']:.4f} (ESS {row['ess_percent']:.1f} %, k̂"
        f" {row['khat']:.2f})"
    )


if __name__ == "__main__":
    main()
