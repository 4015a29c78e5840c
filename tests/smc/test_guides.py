"""Guides of tempered runs: the next temperature, and a run that is repeated."""

import numpy as np

from nestedvi.smc.guides import Adapting, Following, Plan, next_beta
from nestedvi.smc.moves import HamiltonianMove


def test_the_next_temperature_keeps_the_effective_sample_size():
    """Increments (β' − β) l have an ESS of the asked share, or β' = 1 if even that keeps more."""
    log_l = np.random.default_rng(0).normal(size=400) * 20
    beta = 0.1
    new = next_beta(beta, log_l, 0.5)
    w = np.exp(float(new - beta) * np.asarray(log_l))
    np.testing.assert_allclose(w.sum() ** 2 / (w**2).sum(), 200, rtol=1e-4)
    assert 0.1 < new < 1
    assert next_beta(beta, log_l / 1000, 0.5) == 1


def test_what_was_found_is_repeated():
    """Temperatures, numbers of moves, metrics and the sizes after each round, without looking."""
    rng, move = np.random.default_rng(1), HamiltonianMove()
    guide = Adapting(Plan(0.5, moves=2, extra=1, hot=1), move, None)
    beta, z = 0.0, rng.normal(size=(50, 2))
    while (new := guide.temperature(beta, 5 * rng.normal(size=50))) is not None:
        beta = new
        guide.learn(0.9 * guide.tune(beta, z)[1])
    tuned = guide.tuned()
    assert tuned.betas[-1] == 1 and np.all(np.diff(tuned.betas) > 0)
    assert tuned.moves[0] == 4 and set(tuned.moves[1:]) == {2}
    # The round after the last temperature counts for its size.
    np.testing.assert_allclose(np.diff(np.log(tuned.step_sizes))[-1], 2 * np.log(0.9))
    again, seen = Following(tuned, 0.5), []
    while (new := again.temperature(0.0, np.zeros(3))) is not None:
        seen.append((new, *again.tune(new, z)[:2]))
    expected = zip(tuned.betas, tuned.moves, tuned.step_sizes, strict=True)
    np.testing.assert_allclose(seen, list(expected))
