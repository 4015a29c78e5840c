"""Batches of a frozen sampler as one answer: numbers against the runs themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.inference.batches import answer_from_runs, run_batches


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
