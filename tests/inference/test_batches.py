"""Batches of a frozen sampler or of a tempered run as one answer, with a trace of how it came
about: numbers against the runs themselves.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.base import Density
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.inference.batches import answer_from_runs, run_batches, trace_runs, trace_tempering
from nestedvi.particles.resampling import Particles
from nestedvi.particles.weights import ess
from nestedvi.sampler.run import LevelInfo, Run
from nestedvi.smc.tempering import Plan, tempering


@pytest.mark.slow
def test_batches_are_runs_and_their_mean_is_the_answer(key):
    target = Pullback(
        nvi.DiagonalNormal(jnp.ones(2), 1.5), AffineMap(jnp.ones(2), jnp.full(2, 3.0))
    )
    initial = nvi.DiagonalNormal(jnp.zeros(2), 1.0)
    path = nvi.Annealing(initial, target, nvi.LinearSchedule(3))
    sampler = nvi.NestedSampler(initial, path, nvi.Shared(nvi.RandomWalk(jnp.ones(2)), 2))
    keys = jax.random.split(key, 6)
    runs = run_batches(keys, sampler, 40, draws=2)
    answer = answer_from_runs(runs, target, 235)
    alone = nvi.run(keys[3], sampler, 40, draws=2)
    np.testing.assert_allclose(runs.log_Z_hat[3], alone.log_Z_hat, rtol=1e-5)
    Z_hat = np.exp(np.asarray(runs.log_Z_hat, np.float64))
    assert answer.log_Z == pytest.approx(np.log(Z_hat.mean()), abs=1e-5)
    stderr = Z_hat.std(ddof=1) / 6**0.5 / Z_hat.mean()
    assert answer.log_Z_stderr == pytest.approx(stderr, rel=1e-3)
    assert answer.z.shape == (235, 2) and answer.num_batches == 6 and answer.num_ancestors <= 240
    np.testing.assert_allclose(answer.z[0], 1 + 3 * runs.particles.z[0, 0], rtol=1e-5)


def test_batches_of_a_sampler(key):
    """Two batches of two particles and three levels; the first level drew twice as many."""
    log_w = jnp.array([[0.0, 1.0], [2.0, 2.0]])
    info = LevelInfo(*[jnp.array([[4.0, 2.0, 1.5], [2.0, 1.0, 2.0]])] * 7)
    runs = Run(
        Particles(jnp.zeros((2, 2, 1)), None, log_w),
        info,
        jnp.array([[[0, 1], [1, 1]], [[0, 1], [0, 1]]]),
        None,
        jnp.log(jnp.array([[0.5, 0.3, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]])),
        jnp.array([[0, 3], [1, 2]]),
    )
    base = nvi.DiagonalNormal(jnp.zeros(1), 1.0)
    path = nvi.Annealing(base, base, nvi.GivenSchedule([0.0, 0.4, 1.0]))
    walk = nvi.RandomWalk(jnp.ones(1))
    trace = trace_runs(runs, nvi.NestedSampler(base, path, nvi.Shared(walk, 2), nvi.Resampling()))
    np.testing.assert_allclose(trace.log_Z, [np.log((1 + np.e) / 2), 2.0], rtol=1e-6)
    assert trace.num_ancestors.tolist() == [1, 2]
    for level, shares in zip(trace.levels, ([1.0, 1.0, 0.75], [0.5, 0.5, 1.0]), strict=True):
        np.testing.assert_allclose(level.beta, [0.0, 0.4, 1.0], rtol=1e-6)
        np.testing.assert_allclose(level.ess_share, shares, rtol=1e-6)
    assert trace.weight_share[-1] == pytest.approx(1.0) and trace.weight_share[12] > 0.2


def test_adaptive_runs(key):
    """Each temperature but the last keeps the share that its plan asks for."""
    target = Density(lambda z: -0.5 * jnp.sum((z - 3.0) ** 2) / 0.01)
    plan = Plan(ess_share=0.6, moves=1)
    run = tempering(key, ScaleMixture(1), target, plan, num_particles=100)
    trace = trace_tempering(run)
    (level,) = trace.levels
    assert len(level.beta) == run.num_levels > 2 and level.beta[-1] == 1.0
    np.testing.assert_allclose(level.ess_share[:-1], 0.6, atol=0.02)
    last = (run.betas[-1] - run.betas[-2]) * run.log_ratios[-2]
    assert level.ess_share[-1] == pytest.approx(float(ess(last)) / 100)
    content = trace.to_dict()
    assert content["batches"] == {"log_Z": [run.log_Z_hat], "num_ancestors": [int(run.origins[0])]}
    assert len(content["weight_share"]) == 101
    assert len(content["levels"][0]["beta"]) == run.num_levels
