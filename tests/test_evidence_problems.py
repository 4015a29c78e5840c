"""Problems of benchmarks/vs_evidence.py: the same density for every library, and log Z where a
second way is cheap. The libraries themselves are not run here.
"""

import importlib
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import special, stats

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NAMES = ["eight-schools", "label-switching", "slab-and-spike", "two-modes", "seeds", "funnel"]


@pytest.fixture(scope="module")
def problems():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("evidence_problems").PROBLEMS
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_there_are_eight(problems):
    assert len(problems) == 8 and set(NAMES) <= problems.keys()


@pytest.mark.parametrize(
    "name",
    [n if n in ("two-modes", "funnel") else pytest.param(n, marks=pytest.mark.slow) for n in NAMES],
)
def test_every_form_is_the_same_density(name, problems, x64):
    """Quantiles of the unit cube, SciPy's priors and NumPyro's model."""
    problem = problems[name]()
    u = np.random.default_rng(0).uniform(0.3, 0.7, size=(2, problem.dim))
    x = problem.from_cube(u)
    np.testing.assert_allclose(problem.from_cube(u[0]), x[0])
    ends = np.cumsum([block.size for block in problem.blocks])[:-1]
    parts = np.split(x[0], ends)
    log_prior = sum(
        block.scipy().logpdf(part).sum() for block, part in zip(problem.blocks, parts, strict=True)
    )
    if name != "seeds":  # a gamma of shape 0.01 has quantiles below the smallest number
        back = [b.scipy().cdf(part) for b, part in zip(problem.blocks, parts, strict=True)]
        np.testing.assert_allclose(np.concatenate(back), u[0])
    else:
        parts[0] = np.array([2.0])
        log_prior = sum(
            block.scipy().logpdf(part).sum()
            for block, part in zip(problem.blocks, parts, strict=True)
        )
    values = {b.name: jnp.asarray(p) for b, p in zip(problem.blocks, parts, strict=True)}
    expected = log_prior + problem.log_likelihood(jnp.concatenate(list(values.values())))
    np.testing.assert_allclose(log_density(problem.model, (), {}, values)[0], expected)


@pytest.mark.slow
def test_six_modes_are_six_times_one(problems, x64):
    """Ordered means have a sixth of the mass; importance sampling from a normal at one mode."""
    problem = problems["label-switching"]()
    rng = np.random.default_rng(1)
    draws = np.array([-4.0, 0.0, 4.0]) + 0.45 * rng.normal(size=(20_000, 3))
    log_q = stats.norm.logpdf(draws, [-4.0, 0.0, 4.0], 0.45).sum(axis=1)
    log_joint = jax.vmap(problem.log_likelihood)(jnp.asarray(draws))
    log_joint += stats.norm.logpdf(draws, 0, 5).sum(axis=1)
    log_w = np.asarray(log_joint) - log_q
    w = np.exp(log_w - log_w.max())
    error = w.std() / w.mean() / np.sqrt(len(w))
    found = special.logsumexp(log_w) - np.log(len(w)) + np.log(6)
    assert abs(found - problem.log_Z) < 4 * error < 0.05


@pytest.mark.slow
def test_eight_schools_by_draws_of_the_prior(problems, x64):
    problem = problems["eight-schools"]()
    x = problem.from_cube(np.random.default_rng(2).uniform(size=(200_000, 10)))
    log_l = np.asarray(jax.jit(jax.vmap(problem.log_likelihood))(jnp.asarray(x)))
    likelihood = np.exp(log_l - log_l.max())
    error = likelihood.std() / likelihood.mean() / np.sqrt(len(x))
    found = log_l.max() + np.log(likelihood.mean())
    assert abs(found - problem.log_Z) < 4 * error < 0.2
