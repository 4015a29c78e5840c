"""A row's program: the evidence that its samplers estimate against the sum over all sequences of
states.
"""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.paper.hmm.baum_welch import ExpectationMaximisation
from nestedvi.paper.hmm.config import ROWS
from nestedvi.paper.hmm.heuristics import BackwardRecursion, MixtureHeuristic
from nestedvi.paper.hmm.model import simulate
from nestedvi.paper.hmm.program import HMMProgram, build_program
from nestedvi.paper.hmm.proposals import ClusterKernel, NeuralStatistics
from tests.helpers.small_hmm import (
    MODEL,
    XS,
    M,
    assert_mean_is_one,
    exact_recursion,
    log_evidence,
)


def program(heuristic, when="always", encoder=None, guided=False):
    encoder = (
        ExpectationMaximisation(MODEL, key=jax.random.key(1), width=4, num_steps=3)
        if encoder is None
        else encoder
    )
    kernel = ClusterKernel(key=jax.random.key(2), width=4, guided=guided)
    return HMMProgram(encoder, kernel, heuristic, MODEL, nvi.Resampling("systematic", when))


HEURISTICS = {
    "none": lambda: nvi.paths.NoHeuristic(),
    "mixture": lambda: MixtureHeuristic(),
    "recursion": lambda: BackwardRecursion(M, key=jax.random.key(3), width=4),
}
CASES = [("none", "always"), ("mixture", 0.5), ("recursion", 0.5)]


def ratios(program, num_particles, num_runs, seed=7):
    """Ẑ/Z of independent runs, and how many of their levels resampled."""

    def one(key):
        done = nvi.run(key, program(jnp.asarray(XS, jnp.float32)), num_particles)
        return done.log_Z_hat, done.info.resampled

    log_Z, resampled = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), num_runs))
    return np.exp(np.asarray(log_Z, float) - log_evidence(XS)), np.asarray(resampled)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "when"), CASES)
def test_evidence_is_estimated_without_bias(name, when):
    """E[Ẑ] = p(x) for each heuristic, resampling always or when weights have become uneven."""
    ratio, resampled = ratios(
        program(HEURISTICS[name](), when, guided=name == "recursion"), 20, 1000
    )
    if when != "always":
        assert 0.01 < resampled[:, 1:].mean() < 0.99
    assert_mean_is_one(ratio)


def test_evidence_without_bias_from_a_network_that_names_clusters_in_one_way():
    """The paper's encoder is far from the posterior, but its weights are proper all the same."""
    encoder = NeuralStatistics(MODEL, key=jax.random.key(4), width=4)
    ratio, _ = ratios(program(HEURISTICS["mixture"](), encoder=encoder), 20, 1000)
    assert_mean_is_one(ratio)


@pytest.mark.slow
def test_exact_messages_and_modes_give_the_evidence_at_once():
    """With the exact recursion and q(η) around the modes, log Ẑ of 2000 particles is within 0.05 of
    log p(x) (or four errors).
    """
    ratio, _ = ratios(program(exact_recursion(), guided=True), 2000, 6)
    assert np.std(np.log(ratio), ddof=1) < 0.1
    assert abs(np.log(ratio).mean()) < max(0.05, 4 * np.std(np.log(ratio), ddof=1) / math.sqrt(6))


@pytest.mark.slow
def test_every_row_can_be_built():
    """Its sampler has one level more than the series has steps, and what is built is what the row
    says.
    """
    xs = simulate(0, "test", 1, 4)[2][0]
    for row in ROWS.values():
        program = build_program(jax.random.key(0), row, width=3, em_steps=12)
        assert program.kernel.guided == row.guided and program.encoder.symmetric == row.symmetric
        assert jax.eval_shape(lambda x, p=program: p(x).path.thetas().k, xs).shape == (5,)
        assert row.trained_as is None or replace(
            row, label="", refresh=False, trained_as=None
        ) == replace(ROWS[row.trained_as], label="")
