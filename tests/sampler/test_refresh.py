"""Refreshing η between levels: an evidence without bias, more values of η, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.evaluation.instances import evaluate_instances
from nestedvi.paper.hmm.heuristics import MixtureHeuristic
from nestedvi.paper.hmm.linear_gaussian import LinearGaussian, particle_filter
from nestedvi.paper.hmm.program import HMMProgram
from nestedvi.paper.hmm.proposals import ClusterKernel, NormalGammas
from nestedvi.paper.hmm.refresh import ClusterRefresh
from nestedvi.sampler.refresh import run_refreshed
from tests.helpers.amortised_program import start
from tests.helpers.small_hmm import (
    LONGER,
    MODEL,
    assert_mean_is_one,
    log_evidence,
    recursion,
)

pytestmark = pytest.mark.slow
K = len(LONGER)
T = np.array([[0.8, 0.2], [0.35, 0.65]])
HEURISTICS = {
    "none": nvi.paths.NoHeuristic,
    "mixture": MixtureHeuristic,
    "recursion": lambda: recursion(T),
}


class Wide(eqx.Module):
    """q(η | x) that looks at nothing: two clusters around 0.4, either may have either name."""

    def __call__(self, model, xs, fits=None):
        alpha, beta, mu, nu = jnp.array([[3.5, 3.5], [2.5, 2.5], [-0.3, 1.2], [1.0, 1.0]])[:, None]
        return NormalGammas(jnp.zeros(1), alpha, beta, mu, nu, symmetric=True)


def program(heuristic, when="always"):
    kernel = ClusterKernel(key=jax.random.key(2), width=4)
    return HMMProgram(Wide(), kernel, heuristic, MODEL, nvi.Resampling("systematic", when))


@pytest.mark.parametrize(
    ("name", "every", "when"), [("mixture", 3, 0.5), ("recursion", 2, "always")]
)
def test_evidence_is_estimated_without_bias(name, every, when):
    """E[Ẑ] = p(x) when η is moved between levels, by moves of which a good part is accepted at
    every refresh.
    """
    refresh = ClusterRefresh(MODEL, steps=4, scale=0.8)
    sampler = program(HEURISTICS[name](), when)(jnp.asarray(LONGER, jnp.float32))

    def one(key):
        done = run_refreshed(key, sampler, 40, refresh, every=every)
        return done.log_Z_hat, done.acceptance

    log_Z, acceptance = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), 800))
    assert acceptance.shape == (800, K // every) and (acceptance.mean(axis=0) > 0.2).all()
    assert_mean_is_one(np.exp(np.asarray(log_Z, float) - log_evidence(LONGER)), most=0.02)


def test_refreshed_instances_keep_more_values_of_eta():
    """`distinct` is above the count without moves for every instance; log Ẑ of both is near log
    p(x).
    """
    xs = jnp.asarray(np.stack([LONGER, -LONGER, LONGER[::-1] + 0.5]), jnp.float32)
    one, refresh, key, num = (
        program(recursion(T)),
        ClusterRefresh(MODEL, steps=2, scale=0.8),
        jax.random.key(9),
        40,
    )
    plain = evaluate_instances(key, one, xs, num_particles=num)
    refreshed = evaluate_instances(key, one, xs, num_particles=num, refresh=refresh, every=3)
    assert (refreshed.distinct > plain.distinct).all() and (refreshed.distinct <= num).all()
    exact = [log_evidence(x) for x in np.asarray(xs, float)]
    # The evidence test above has the errors; here only that instances and numbers belong together.
    for found in (plain, refreshed):
        np.testing.assert_allclose(found.log_Z_hat, exact, atol=1.0)


def test_only_global_variables_can_be_refreshed():
    """A path without η is refused by name, a state-space path too."""
    refresh = ClusterRefresh(MODEL, steps=2, scale=0.8)
    without = particle_filter(LinearGaussian(), jnp.asarray(LONGER, jnp.float32))
    for sampler in (start()(jnp.asarray(0.3)), without):
        with pytest.raises(
            TypeError,
            match=f"with a prior can be refreshed; this path is a {type(sampler.path).__name__}",
        ):
            run_refreshed(jax.random.key(0), sampler, 4, refresh, every=1)


@pytest.mark.parametrize("every", [0, -2, 4, 7])
def test_refreshes_must_divide_the_steps(every):
    """K = 6 steps are no whole number of parts of that length."""
    sampler = program(nvi.paths.NoHeuristic())(jnp.asarray(LONGER))
    with pytest.raises(
        ValueError, match=f"`every` must divide the number of steps, 6; got {every}"
    ):
        run_refreshed(
            jax.random.key(0), sampler, 4, ClusterRefresh(MODEL, steps=2, scale=0.8), every=every
        )
