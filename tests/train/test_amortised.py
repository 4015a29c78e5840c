"""Amortised training: what it learns, which gradient it takes, and that one bad instance cannot
spoil it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nestedvi as nvi
import nestedvi.train.loop as loop_module
from nestedvi.paper.hmm.heuristics import MixtureHeuristic
from nestedvi.paper.hmm.model import GaussianHMM
from nestedvi.paper.hmm.program import HMMProgram
from nestedvi.paper.hmm.proposals import ClusterKernel, NeuralStatistics
from nestedvi.train.amortised import AmortisedTrainer
from tests.helpers.amortised_program import NOISE, log_evidence, start
from tests.helpers.small_training import assert_same_bits

pytestmark = pytest.mark.usefixtures("compiled_once")

OBJECTIVE = nvi.Objective(learn="forward")
XS = np.random.default_rng(0).normal(size=32).astype(np.float32) * np.float32(np.hypot(1, NOISE))


def train(num_steps, data=XS, **options):
    options = {"optimiser": optax.adam(0.03), "num_particles": 8, "batch_size": 8, **options}
    return nvi.fit_amortised(
        jax.random.key(0), start(), data, OBJECTIVE, num_steps=num_steps, **options
    )


@pytest.mark.slow
def test_training_raises_the_evidence_estimates():
    """From poor proposals log Ẑ, a lower bound on average, climbs on instances not seen, and does
    not climb past log p(x).
    """
    fit = train(300)
    assert fit.record.log_Z_hat.shape == (300,) and fit.num_steps == 300 and fit.dropped == 0
    new = np.random.default_rng(1).normal(size=500).astype(np.float32)
    before, after = (
        nvi.evaluate_instances(jax.random.key(2), p, new, num_particles=8)
        for p in (start(), fit.program)
    )

    def error(x):
        return x.std(ddof=1) / np.sqrt(x.size)

    gain, short = after.log_Z_hat - before.log_Z_hat, log_evidence(new) - after.log_Z_hat
    assert gain.mean() > 0.2 + 4 * error(gain)
    assert -4 * error(short) < short.mean() < 0.3


def test_a_step_is_the_mean_of_its_instances():
    """Each instance's gradient, pulled back by hand through shift = a x + b and log_scale = c,
    averaged over the good ones.
    """
    batch_size, key = 5, jax.random.key(6)
    learner = AmortisedTrainer(
        start(), OBJECTIVE, XS[:3], None, "sequential", 6, batch_size, None, None
    )
    step = jax.jit(
        lambda key, data: learner.gradient(key, learner.params, learner.fixed, data, None)
    )
    alone = jax.jit(lambda key, x: nvi.train.orders.gradient(key, start()(x), OBJECTIVE, 6))
    key_batch, key_levels = jax.random.split(key)
    picks = np.asarray(jax.random.randint(key_batch, (batch_size,), 0, 3))
    assert set(picks.tolist()) == {0, 1, 2}
    for bad in (None, np.nan, 1e30):
        data = XS[:3].copy()
        if bad is not None:
            data[1] = bad
        found, rows, log_Z = step(key, jnp.asarray(data)), [], []
        for key_one, i in zip(jax.random.split(key_levels, batch_size), picks, strict=True):
            if bad is None or i != 1:
                single = alone(key_one, data[i])
                forward = single.grads.transitions.transition.forward
                rows.append(
                    [forward.shift.sum() * data[i], forward.shift.sum(), forward.log_scale.sum()]
                )
                log_Z.append(single.info.log_Z_hat)
        np.testing.assert_allclose(jax.tree.leaves(found.grads), np.mean(rows, axis=0), rtol=1e-4)
        np.testing.assert_allclose(found.info.log_Z_hat, np.mean(log_Z), rtol=1e-4)
        assert found.info.dropped == batch_size - len(rows) and bool(found.finite.all())


def test_bad_instances_are_counted_and_left_out():
    """Every pick of a NaN or an absurd instance is dropped; a batch of nothing else changes no
    parameter.
    """
    data = XS.copy()
    data[3], data[20] = np.nan, 1e30
    fit = train(24, data)
    picks = [
        jax.random.randint(
            jax.random.split(jax.random.fold_in(jax.random.key(0), i + 1))[0], (8,), 0, 32
        )
        for i in range(24)
    ]
    expected = np.isin(np.stack(picks), [3, 20]).sum(axis=1)
    assert expected.sum() > 0
    np.testing.assert_array_equal(fit.record.dropped, expected)
    assert fit.dropped == expected.sum()
    assert all(
        np.isfinite(x).all()
        for x in jax.tree.leaves((eqx.filter(fit.program, eqx.is_inexact_array), fit.record))
    )
    only = train(3, np.full(32, np.nan, np.float32))
    assert_same_bits(only.program, start())
    assert only.record.dropped.tolist() == [8, 8, 8]
    with pytest.raises(nvi.errors.NonFiniteGradientError):
        train(24, np.full(32, np.nan, np.float32), max_nonfinite=5)


@pytest.mark.slow
def test_an_absurd_series_does_not_poison_the_networks_of_an_hmm():
    """Encoder, kernel and heuristic learn from the sound series of a batch; their parameters stay
    finite and log Ẑ rises.
    """
    model = GaussianHMM(num_clusters=2, nu=0.1)
    keys = jax.random.split(jax.random.key(7), 4)
    xs = np.tile(np.array([-3.1, -2.4, 2.0, 1.2, 2.6, -2.2], np.float32), (8, 1))
    xs[2], xs[5, 3] = 1e30, np.nan
    encoder = NeuralStatistics(model, key=keys[1], width=4)
    # A poor start, so that there is something to learn.
    encoder = eqx.tree_at(lambda e: e.head.out.bias, encoder, jnp.array([-1.0, 1.0, 1.0, 2.0]))
    heuristic = MixtureHeuristic.neural(key=keys[2], width=4)
    program = HMMProgram(encoder, ClusterKernel(key=keys[3], width=4), heuristic, model)
    what = nvi.Objective("forward-kl", learn=("initial", "forward", "path"), optimise="partial")
    options = {"num_particles": 16, "batch_size": 8, "optimiser": optax.adam(0.05)}
    fit = nvi.fit_amortised(jax.random.key(8), program, xs, what, num_steps=60, **options)
    assert 0 < fit.dropped < 60 * 8 / 2
    params, before = (
        eqx.filter(fit.program, eqx.is_inexact_array),
        eqx.filter(program, eqx.is_inexact_array),
    )
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((params, fit.record)))
    for part in ("encoder", "kernel", "heuristic"):
        pairs = zip(
            jax.tree.leaves(getattr(params, part)),
            jax.tree.leaves(getattr(before, part)),
            strict=True,
        )
        assert max(np.abs(new - old).max() for new, old in pairs) > 1e-3
    early, late = fit.record.log_Z_hat[:3], fit.record.log_Z_hat[-20:]
    assert late.mean() - 4 * late.std(ddof=1) > early.max() + 0.3


@pytest.mark.slow
def test_resuming_ends_in_the_same_bits(tmp_path, monkeypatch):
    """Stopped after 13 of 24 steps and resumed, in chunks of other sizes: every bit is that of one
    uninterrupted training.
    """
    whole = train(24)
    monkeypatch.setattr(loop_module, "_SECONDS_PER_CHUNK", 0.0)
    train(13, checkpoint=tmp_path)
    resumed = train(24, checkpoint=tmp_path)
    assert_same_bits(resumed.program, whole.program)
    assert_same_bits(resumed.record, whole.record)
    assert resumed.num_steps == 24 and resumed.record.dropped.shape == (24,)


def test_a_checkpoint_of_other_data_is_not_continued(tmp_path):
    train(9, checkpoint=tmp_path)
    with pytest.raises(nvi.errors.CheckpointError):
        train(12, XS + 1, checkpoint=tmp_path)


@pytest.mark.slow
def test_restarts_are_trainings_side_by_side():
    """Each of two programs on a leading axis trains as it would alone with its share of the key,
    its average included.
    """
    programs = jax.tree.map(
        lambda x: jnp.stack([x, x + 0.1]) if eqx.is_inexact_array(x) else x, start()
    )
    options = {"num_steps": 9, "num_particles": 8, "batch_size": 8, "average": 0.9}
    key = jax.random.key(0)
    both = nvi.fit_amortised(key, programs, XS, OBJECTIVE, restarts=2, **options)
    alone = nvi.fit_amortised(
        jax.random.split(key)[1], nvi.restart(programs, 1), XS, OBJECTIVE, **options
    )
    assert both.record.log_Z_hat.shape == (9, 2)
    np.testing.assert_allclose(both.record.log_Z_hat[:, 1], alone.record.log_Z_hat, rtol=1e-4)
    for side, single in zip(
        jax.tree.leaves(both.program), jax.tree.leaves(alone.program), strict=True
    ):
        np.testing.assert_allclose(side[1], single, rtol=1e-4)
    assert both.program.slope[0] != both.program.slope[1]


class Odd(eqx.Module):
    number: jax.Array

    def __call__(self, x):
        return self.number * x


class Bare(eqx.Module):
    def __call__(self, x):
        return start()(x)


PATH = nvi.Objective(learn="path")
ERRORS = {
    "no instances": (ValueError, "leading axis of instances", lambda: {"data": np.zeros(0)}),
    "scalars": (ValueError, "leading axis of instances", lambda: {"data": np.float32(1.0)}),
    "unequal": (ValueError, r"\[3, 4\]", lambda: {"data": (np.zeros(3), np.zeros(4))}),
    "no sampler": (TypeError, "must make a NestedSampler", lambda: {"program": Odd(jnp.ones(()))}),
    "level-parallel": (ValueError, "Level-parallel", lambda: {"order": "level-parallel"}),
    "no such order": (nvi.errors.UnknownNameError, "two-phases", lambda: {"order": "two-phases"}),
    "no parameters": (ValueError, "no floating-point arrays", lambda: {"program": Bare()}),
    "nothing in the groups": (
        ValueError,
        r"no parameters in the groups \['path'\]",
        lambda: {"objective": PATH},
    ),
    "no steps": (ValueError, "num_steps", lambda: {"num_steps": 0}),
    "no batch": (ValueError, "batch_size", lambda: {"batch_size": 0}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_does_not_fit_is_said_at_once(name):
    error, match, change = ERRORS[name]
    given = {
        "program": start(),
        "data": XS,
        "objective": OBJECTIVE,
        "num_steps": 1,
        "num_particles": 4,
        **change(),
    }
    program, data, objective = (given.pop(k) for k in ("program", "data", "objective"))
    with pytest.raises(error, match=match):
        nvi.fit_amortised(jax.random.key(0), program, data, objective, **given)
