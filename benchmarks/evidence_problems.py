"""Eight problems with a known log Z, each as independent priors and a log likelihood, so that every
library gets the same problem in its own form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from scipy import special, stats

from nestedvi.targets.bayesian import breast_cancer
from nestedvi.targets.catalogue import get_target
from nestedvi.targets.data import SEEDS

__all__ = ["PROBLEMS", "Block", "Problem"]

_FAMILIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "normal": (dist.Normal, lambda a, b: stats.norm(a, b)),
    "half-cauchy": (dist.HalfCauchy, lambda a: stats.halfcauchy(0, a)),
    "uniform": (dist.Uniform, lambda a, b: stats.uniform(a, b - a)),
    "gamma": (dist.Gamma, lambda a, b: stats.gamma(a, scale=1 / b)),
}


class Block(NamedTuple):
    """`size` parameters with the same prior: a family and its arguments, a gamma's second being its
    rate.
    """

    name: str
    size: int
    family: str
    args: tuple[float, ...]

    def numpyro(self) -> dist.Distribution:
        return _FAMILIES[self.family][0](*self.args)

    def scipy(self) -> Any:
        return _FAMILIES[self.family][1](*self.args)


@dataclass(frozen=True)
class Problem:
    """Priors, a log likelihood of one vector, and log Z with where it is from."""

    name: str
    blocks: tuple[Block, ...]
    log_likelihood: Callable[[jax.Array], jax.Array]
    log_Z: float
    source: str

    @property
    def dim(self) -> int:
        return sum(block.size for block in self.blocks)

    def model(self) -> None:
        """The problem as a NumPyro model."""
        parts = [
            numpyro.sample(block.name, block.numpyro().expand([block.size]).to_event(1))
            for block in self.blocks
        ]
        numpyro.factor("likelihood", self.log_likelihood(jnp.concatenate(parts)))

    def from_cube(self, u: np.ndarray) -> np.ndarray:
        """The priors' quantiles, for points of the unit cube with any leading axes."""
        u = np.asarray(u, dtype=float)
        ends = np.cumsum([block.size for block in self.blocks])
        parts = np.split(u, ends[:-1], axis=-1)
        values = [block.scipy().ppf(part) for block, part in zip(self.blocks, parts, strict=True)]
        return np.concatenate(values, axis=-1)


def _log_normal(x: jax.Array, mean: Any, scale: float) -> jax.Array:
    """log N(x; mean, scale² I)."""
    return jnp.sum(-0.5 * ((x - mean) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi))


def eight_schools() -> Problem:
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_likelihood(x):
        theta = x[0] + x[1] * x[2:]
        return jnp.sum(-0.5 * ((y - theta) / error) ** 2 - np.log(error)) - 4 * np.log(2 * np.pi)

    # Given τ the effects are jointly Gaussian; log τ is left.
    grid = np.linspace(-14, 14, 2001)
    tau = np.exp(grid)
    values = [
        stats.multivariate_normal.logpdf(y, np.zeros(8), np.diag(t**2 + error**2) + 25) for t in tau
    ]
    log_Z = special.logsumexp(stats.halfcauchy.logpdf(tau, 0, 5) + grid + values)
    blocks = (
        Block("mu", 1, "normal", (0.0, 5.0)),
        Block("tau", 1, "half-cauchy", (5.0,)),
        Block("effect", 8, "normal", (0.0, 1.0)),
    )
    log_Z = float(log_Z + np.log(grid[1] - grid[0]))
    return Problem("eight-schools", blocks, log_likelihood, log_Z, "quadrature")


def breast_cancer_regression() -> Problem:
    signed = np.asarray(breast_cancer().signed)

    def log_likelihood(x):
        return jnp.sum(jax.nn.log_sigmoid(signed @ x))

    target = get_target("breast-cancer")
    blocks = (Block("w", target.dim, "normal", (0.0, 1.0)),)
    return Problem("breast-cancer", blocks, log_likelihood, target.log_Z, target.source)


def label_switching() -> Problem:
    """Three equal clusters of unit normals with unknown means: six modes, one a permutation."""
    y = np.concatenate([np.linspace(-1.2, 1.2, 8) + centre for centre in (-4.0, 0.0, 4.0)])

    def log_likelihood(x):
        each = -0.5 * (y[:, None] - x) ** 2 - 0.5 * np.log(2 * np.pi) - np.log(3)
        return jnp.sum(jax.nn.logsumexp(each, axis=1))

    # The trapezoidal rule converges faster than any power of the step for what is smooth.
    grid = np.linspace(-12, 12, 97)
    each = stats.norm.pdf(y[:, None], grid) / 3
    prior, step = stats.norm.logpdf(grid, 0, 5), grid[1] - grid[0]
    slices = []
    for i in range(len(grid)):
        pair = each[:, i, None, None] + each[:, :, None] + each[:, None, :]
        log_joint = np.log(pair).sum(axis=0) + prior[:, None] + prior + prior[i]
        slices.append(special.logsumexp(log_joint))
    log_Z = float(special.logsumexp(slices) + 3 * np.log(step))
    blocks = (Block("mean", 3, "normal", (0.0, 5.0)),)
    return Problem("label-switching", blocks, log_likelihood, log_Z, "quadrature")


def _two_normals(
    name: str, dim: int, first: tuple[float, float], second: tuple[float, float], prior: float
) -> Problem:
    """Half of the posterior's mass in each of two normals, (mean, scale) in every coordinate; the
    likelihood is what is left when the prior is taken off, so that Z = 1.
    """

    def log_likelihood(x):
        mass = jnp.logaddexp(_log_normal(x, *first), _log_normal(x, *second)) - np.log(2)
        return mass - _log_normal(x, 0.0, prior)

    blocks = (Block("x", dim, "normal", (0.0, prior)),)
    return Problem(name, blocks, log_likelihood, 0.0, "closed form")


def slab_and_spike() -> Problem:
    return _two_normals("slab-and-spike", 10, (0.0, 0.5), (0.0, 0.1), 1.0)


def two_modes() -> Problem:
    return _two_normals("two-modes", 10, (-1.0, 0.5), (1.0, 0.3), 2.0)


def gaussian_process() -> Problem:
    """A hundred values of a smooth function, seen with noise; written as f = L z."""
    x = np.linspace(0, 10, 100)
    y = np.sin(x) + 0.3 * np.cos(17 * x)
    covariance = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-8 * np.eye(100)
    root, noise = np.linalg.cholesky(covariance), 0.3

    def log_likelihood(z):
        return _log_normal(root @ z, y, noise)

    log_Z = stats.multivariate_normal.logpdf(y, np.zeros(100), covariance + noise**2 * np.eye(100))
    blocks = (Block("z", 100, "normal", (0.0, 1.0)),)
    return Problem("gaussian-process", blocks, log_likelihood, float(log_Z), "closed form")


def seeds() -> Problem:
    r, n, x1, x2 = SEEDS.T.astype(float)
    ways = np.log(special.binom(n, r)).sum()

    def log_likelihood(x):
        tau, a, effects = x[0], x[1:5], x[5:]
        logits = a[0] + a[1] * x1 + a[2] * x2 + a[3] * x1 * x2
        # A precision of zero would make NaN out of ∞ · 0 where the likelihood is merely tiny.
        logits += effects / jnp.sqrt(jnp.maximum(tau, 1e-12))
        return jnp.sum(r * logits - n * jax.nn.softplus(logits)) + ways

    target = get_target("seeds")
    blocks = (
        Block("tau", 1, "gamma", (0.01, 0.01)),
        Block("a", 4, "normal", (0.0, 10.0)),
        Block("effect", 21, "normal", (0.0, 1.0)),
    )
    return Problem("seeds", blocks, log_likelihood, target.log_Z, target.source)


def funnel() -> Problem:
    """Neal's funnel in ten dimensions, its nine wide coordinates in a box."""
    half = 30.0

    def log_likelihood(x):
        scaled = x[1:] * jnp.exp(-0.5 * x[0])
        return jnp.sum(-0.5 * scaled**2 - 0.5 * x[0] - 0.5 * np.log(2 * np.pi))

    grid = np.linspace(-30, 30, 6001)
    inside = 9 * np.log(special.erf(half / np.exp(grid / 2) / np.sqrt(2)) / (2 * half))
    log_Z = special.logsumexp(stats.norm.logpdf(grid, 0, 3) + inside)
    log_Z = float(log_Z + np.log(grid[1] - grid[0]))
    blocks = (
        Block("neck", 1, "normal", (0.0, 3.0)),
        Block("x", 9, "uniform", (-half, half)),
    )
    return Problem("funnel", blocks, log_likelihood, log_Z, "quadrature")


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "eight-schools": cache(eight_schools),
    "breast-cancer": cache(breast_cancer_regression),
    "label-switching": cache(label_switching),
    "slab-and-spike": cache(slab_and_spike),
    "two-modes": cache(two_modes),
    "gaussian-process": cache(gaussian_process),
    "seeds": cache(seeds),
    "funnel": cache(funnel),
}
