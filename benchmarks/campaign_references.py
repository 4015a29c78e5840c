"""Reference values of log Z for cases of the campaign that have no closed form, by algorithms that
share nothing with the library's samplers.

Run as: python benchmarks/campaign_references.py (a few minutes on one core). Writes
src/nestedvi/bench/campaign/references.json, which the campaign reads.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import optimize, stats
from scipy.special import gammaln, logsumexp

import nestedvi.bench.campaign.simulated as cases
from nestedvi.storage.files import provenance, write_json

_OUT = Path(cases.__file__).parent / "references.json"
Estimate = tuple[float, float]


def mean_of(log_values: np.ndarray) -> Estimate:
    """log of the mean of independent estimates, and its standard error."""
    top = log_values.max()
    values = np.exp(log_values - top)
    error = values.std(ddof=1) / np.sqrt(len(values)) / values.mean()
    return float(top + np.log(values.mean())), float(error)


def by_importance(
    rng: np.random.Generator,
    log_gamma: Callable[[np.ndarray], np.ndarray],
    mean: np.ndarray,
    cov: np.ndarray,
    *,
    fit: int,
    draws: int,
    rounds: int,
    freedom: float,
) -> Estimate:
    """Importance sampling from a multivariate t that is refitted to its own weighted draws."""
    for size in [fit] * rounds + [draws]:
        proposal = stats.multivariate_t(mean, cov, df=freedom, seed=rng)
        z = np.atleast_2d(proposal.rvs(size))
        log_w = log_gamma(z) - proposal.logpdf(z)
        weights = np.exp(log_w - logsumexp(log_w))
        mean = weights @ z
        cov = np.cov(z.T, aweights=weights) * (freedom - 2) / freedom
    return mean_of(log_w)


def logistic(rng: np.random.Generator) -> Estimate:
    x, y = cases.logistic_data()
    signed = np.where(y > 0, 1.0, -1.0)[:, None] * x

    def log_gamma(z: np.ndarray) -> np.ndarray:
        chunks = np.array_split(z, max(1, len(z) // 4000))
        log_y = np.concatenate([-np.logaddexp(0, -(c @ signed.T)).sum(axis=1) for c in chunks])
        return log_y - 0.5 * np.sum(z**2, axis=1) - 0.5 * z.shape[1] * np.log(2 * np.pi)

    def gradient(z: np.ndarray) -> np.ndarray:
        return (1 / (1 + np.exp(z @ signed.T))) @ signed - z

    mode = optimize.minimize(
        lambda w: -log_gamma(w[None])[0], np.zeros(61), jac=lambda w: -gradient(w[None])[0]
    ).x
    p = 1 / (1 + np.exp(-signed @ mode))
    curvature = signed.T @ (signed * (p * (1 - p))[:, None]) + np.eye(61)
    root = np.linalg.cholesky(np.linalg.inv(curvature))
    mean, cov = hamiltonian_moments(rng, log_gamma, gradient, mode, root)
    return by_importance(
        rng, log_gamma, mean, cov, fit=100_000, draws=600_000, rounds=1, freedom=60.0
    )


def hamiltonian_moments(
    rng: np.random.Generator,
    log_gamma: Callable[[np.ndarray], np.ndarray],
    gradient: Callable[[np.ndarray], np.ndarray],
    mode: np.ndarray,
    root: np.ndarray,
    *,
    chains: int = 200,
    moves: int = 300,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance from Hamiltonian chains in coordinates where the mode is round; the
    proposal needs no more than roughly that.
    """
    u = rng.normal(size=(chains, len(mode)))
    kept = []
    for move in range(moves):
        start, p = u, rng.normal(size=u.shape)
        step = 0.25 * rng.uniform(0.8, 1.2)
        log_here = log_gamma(mode + u @ root.T) - 0.5 * np.sum(p**2, axis=1)
        p = p + 0.5 * step * gradient(mode + u @ root.T) @ root
        for leap in range(6):
            u = u + step * p
            p = p + (0.5 if leap == 5 else 1.0) * step * gradient(mode + u @ root.T) @ root
        log_there = log_gamma(mode + u @ root.T) - 0.5 * np.sum(p**2, axis=1)
        accept = np.log(rng.uniform(size=chains)) < log_there - log_here
        u = np.where(accept[:, None], u, start)
        if move >= moves // 3:
            kept.append(mode + u @ root.T)
    z = np.concatenate(kept)
    return z.mean(axis=0), np.cov(z.T)


def seeds_given(alpha: np.ndarray, log_tau: float) -> np.ndarray:
    """log p(r, α | τ) for rows of α: each plate's effect is an integral of one dimension."""
    kind, extract = cases.SEEDS_TYPE, cases.SEEDS_EXTRACT
    design = np.stack([np.ones(21), kind, extract, kind * extract])
    effect = np.linspace(-8.0, 8.0, 161)
    log_effect = stats.norm.logpdf(effect) + np.log(effect[1] - effect[0])
    r, n = cases.SEEDS_R, cases.SEEDS_N
    ways = gammaln(n + 1) - gammaln(r + 1) - gammaln(n - r + 1)
    total = stats.norm(0, 10).logpdf(alpha).sum(axis=1) + ways.sum()
    for j in range(21):
        logits = (alpha @ design[:, j])[:, None] + effect * np.exp(-0.5 * log_tau)
        log_r = r[j] * logits - n[j] * np.logaddexp(0, logits)
        total += logsumexp(log_r + log_effect, axis=1)
    return total


def seeds(rng: np.random.Generator, nodes: int = 7) -> Estimate:
    """Hermite's rule for α around its mode given τ, the trapezoidal rule for log τ."""
    log_tau = np.linspace(-4.0, 9.0, 53)
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.array(list(itertools.product(x, repeat=4)))
    log_w = np.array([np.log(v).sum() for v in itertools.product(w, repeat=4)])
    values = {}
    for t in log_tau:
        found = optimize.minimize(lambda a, t=t: -seeds_given(a[None], t)[0], np.zeros(4))
        root = np.linalg.cholesky(found.hess_inv)
        log_p = seeds_given(found.x + grid @ root.T, t) + 0.5 * np.sum(grid**2, axis=1)
        value = logsumexp(log_p + log_w) + np.linalg.slogdet(root)[1]
        values[t] = value + stats.gamma(0.01, scale=100.0).logpdf(np.exp(t)) + t
    log_p = np.array(list(values.values()))
    fine = logsumexp(log_p) + np.log(log_tau[1] - log_tau[0])
    coarse = logsumexp(log_p[::2]) + np.log(log_tau[2] - log_tau[0])
    return float(fine), float(abs(fine - coarse))


def systematic(rng: np.random.Generator, log_w: np.ndarray) -> np.ndarray:
    """Ancestors for each row of weights."""
    rows, num = log_w.shape
    w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
    ends = np.cumsum(w, axis=1)
    ends = np.floor(num * ends / ends[:, -1:] + rng.uniform(size=(rows, 1))).astype(int)
    ends[:, -1] = num
    counts = np.diff(np.minimum(ends, num), axis=1, prepend=0)
    return np.repeat(np.tile(np.arange(num), rows), counts.ravel()).reshape(rows, num)


def lorenz(rng: np.random.Generator, runs: int = 16, num: int = 200_000) -> Estimate:
    """Independent bootstrap filters."""
    y = dict(zip(cases.LORENZ_SEEN.tolist(), cases.lorenz_data(), strict=True))
    scale = np.sqrt(cases._STEP) * cases._INNOVATION
    estimates = []
    for _ in range(runs):
        x, log_Z = np.array([-8.0, -9.0, 25.0]) + rng.normal(size=(num, 3)), 0.0
        for t in range(cases.LORENZ_STEPS):
            if t:
                x = cases.lorenz_step(x) + scale * rng.normal(size=(num, 3))
            if t in y:
                log_w = stats.norm(x[:, 0], cases._NOISE).logpdf(y[t])
                log_Z += logsumexp(log_w) - np.log(num)
                x = x[systematic(rng, log_w[None])[0]]
        estimates.append(log_Z)
    return mean_of(np.array(estimates))


def volatility_filter(
    rng: np.random.Generator, y: np.ndarray, theta: np.ndarray, num: int
) -> np.ndarray:
    """An unbiased estimate of p(y | μ, φ, σ) for each row of θ, as its logarithm."""
    mu, phi, sigma = theta.T[:, :, None]
    h = sigma / np.sqrt(1 - phi**2) * rng.normal(size=(len(theta), num))
    log_Z = np.zeros(len(theta))
    for t, value in enumerate(y):
        if t:
            h = phi * h + sigma * rng.normal(size=h.shape)
        with np.errstate(over="ignore"):
            log_w = stats.norm.logpdf(value * np.exp(-(mu + h) / 2)) - (mu + h) / 2
        log_Z += logsumexp(log_w, axis=1) - np.log(num)
        h = np.take_along_axis(h, systematic(rng, log_w), axis=1)
    return log_Z


def volatility(rng: np.random.Generator, steps: int, draws: int, num: int) -> Estimate:
    """Importance sampling of the three parameters, each with a filter of its own."""
    y = cases.volatility_data(steps)

    def log_gamma(z: np.ndarray) -> np.ndarray:
        """z is (μ, logit of (φ + 1)/2, log σ); the prior with its Jacobian, and a filter."""
        share, sigma = 1 / (1 + np.exp(-z[:, 1])), np.exp(z[:, 2])
        log_prior = stats.norm(0, 2).logpdf(z[:, 0]) + stats.halfnorm(scale=0.5).logpdf(sigma)
        log_prior += stats.beta(20, 1.5).logpdf(share) + np.log(share * (1 - share)) + z[:, 2]
        theta = np.column_stack([z[:, 0], 2 * share - 1, sigma])
        chunks = np.array_split(theta, max(1, len(theta) // 100))
        log_y = np.concatenate([volatility_filter(rng, y, c, num) for c in chunks])
        return log_prior + log_y

    start = np.array([np.log(np.var(y)), 3.0, -1.2])
    return by_importance(
        rng,
        log_gamma,
        start,
        np.diag([0.5, 1.0, 0.3]),
        fit=500,
        draws=draws,
        rounds=2,
        freedom=10.0,
    )


REFERENCES: dict[str, Callable[[np.random.Generator], Estimate]] = {
    "logistic-61": logistic,
    "seeds": seeds,
    "lorenz-bridge": lorenz,
    "volatility-100": lambda rng: volatility(rng, 100, 8000, 800),
}


def main() -> None:
    """Prints and writes every value with its error."""
    rows = {}
    for name, compute in REFERENCES.items():
        log_Z, error = compute(np.random.default_rng(0))
        rows[name] = {"log_Z": log_Z, "stderr": error}
        print(f"{name}: log Z = {log_Z:.4f} ± {error:.4f}", flush=True)
        write_json(_OUT, {"references": rows, **provenance(0)})


if __name__ == "__main__":
    main()
