"""Weights in log space: stable for huge and tiny weights, honest when all are zero, standard errors
and Pareto k̂.
"""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.particles.weights import (
    beyond_largest,
    normalise_cut,
    num_families,
    relative_variance,
)
from tests.helpers.properties import given, settings, st

CHECKED = settings(max_examples=100, deadline=None, derandomize=True)
NORMALISE, ESS, LOG_Z_HAT = (
    jax.jit(nvi.particles.normalise),
    jax.jit(nvi.ess),
    jax.jit(nvi.log_Z_hat),
)
entry = st.one_of(st.just(-math.inf), st.floats(-20.0, 20.0, width=32))


@CHECKED
@given(raw=st.lists(entry, min_size=6, max_size=6), shift=st.sampled_from([0.0, -1e4, 1e4]))
def test_against_plain_arithmetic_at_any_scale(raw, shift):
    """A common factor e^±10000 changes log Ẑ by that and nothing else; plain arithmetic on the
    unshifted weights decides.
    """
    w = [math.exp(x) if x > -math.inf else 0.0 for x in raw]
    total, square = math.fsum(w), math.fsum(x * x for x in w)
    log_w = jnp.asarray(raw) + shift
    tolerance = 1e-5 if shift == 0 else 5e-3  # float32 near 10000 resolves 0.001
    np.testing.assert_allclose(
        NORMALISE(log_w), np.asarray(w) / total if total else np.zeros(6), rtol=tolerance, atol=1e-7
    )
    np.testing.assert_allclose(ESS(log_w), total**2 / square if total else 0.0, rtol=2 * tolerance)
    expected = math.log(total / 6) + shift if total else -math.inf
    np.testing.assert_allclose(LOG_Z_HAT(log_w), expected, rtol=1e-5, atol=tolerance)


def test_all_zero_weights_are_zero_and_not_nan():
    log_w = jnp.full(4, -jnp.inf)
    assert nvi.particles.normalise(log_w).tolist() == [0.0] * 4
    assert float(nvi.ess(log_w)) == 0.0
    assert float(nvi.log_Z_hat(log_w)) == -math.inf


def test_a_single_particle():
    assert float(nvi.ess(jnp.array([-500.0]))) == 1.0
    assert float(nvi.log_Z_hat(jnp.array([-500.0]))) == -500.0


def test_batches_act_on_the_last_axis(key):
    log_w = jax.random.normal(key, (2, 2, 7))
    for fn in (nvi.particles.normalise, nvi.ess, nvi.log_Z_hat):
        rows = jnp.stack([jnp.stack([fn(row) for row in block]) for block in log_w])
        np.testing.assert_allclose(fn(log_w), rows, rtol=1e-5, atol=1e-6)


def test_nan_is_not_hidden():
    """A density that returns NaN must be seen, not repaired, by whoever asks for the estimate."""
    log_w = jnp.array([0.0, jnp.nan])
    assert math.isnan(nvi.log_Z_hat(log_w))
    assert jnp.isnan(nvi.particles.normalise(log_w)).any()


@pytest.mark.parametrize("shift", [0.0, 5000.0, -5000.0])
def test_standard_error_of_log_Z_hat(shift, x64):
    """Ẑ = 1, 2, 6: the mean is 3, its standard error √7/√3, and the delta method divides by the
    mean.
    """
    value, stderr = nvi.particles.log_Z_hat_stderr(jnp.log(jnp.array([1.0, 2.0, 6.0])) + shift)
    np.testing.assert_allclose(value, math.log(3.0) + shift, rtol=1e-12)
    np.testing.assert_allclose(stderr, math.sqrt(7.0 / 3.0) / 3.0, rtol=1e-9)


def test_standard_error_needs_two_batches():
    value, stderr = nvi.particles.log_Z_hat_stderr(jnp.array([1.25]))
    assert float(value) == 1.25
    assert math.isnan(stderr)


def test_batches_without_weight_count_as_zero():
    value, _ = nvi.particles.log_Z_hat_stderr(jnp.array([0.0, -jnp.inf]))
    np.testing.assert_allclose(value, math.log(0.5), rtol=1e-6)
    assert float(nvi.particles.log_Z_hat_stderr(jnp.full(3, -jnp.inf))[0]) == -math.inf


def pareto_log_weights(shape, num, seed):
    """log of generalised Pareto draws: ((1 − u)^{−k} − 1)/k, an exponential for k = 0."""
    u = np.random.default_rng(seed).uniform(size=num)
    return np.log(((1 - u) ** -shape - 1) / shape if shape else -np.log1p(-u))


@pytest.mark.parametrize("shape", [0.0, 0.3, 0.7, 1.2])
def test_khat_finds_the_shape_of_a_pareto_tail(shape):
    """The estimator's standard error is about (1 + k)/√tail, and a prior worth ten draws pulls it
    to 0.5.
    """
    num, replicas = 20_000, 5
    tail = math.ceil(3 * math.sqrt(num))
    found = np.mean([nvi.khat(pareto_log_weights(shape, num, seed)) for seed in range(replicas)])
    shrunk = (tail * shape + 5) / (tail + 10)
    assert abs(found - shrunk) < 4 * (1 + shape) / math.sqrt(tail * replicas)


@pytest.mark.parametrize("shape", [0.2, 0.8])
@pytest.mark.parametrize("num", [50, 333, 5000])
def test_khat_agrees_with_arviz(shape, num):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz")
        log_w = pareto_log_weights(shape, num, seed=3)
        _, expected = arviz.psislw(log_w)
    assert abs(nvi.khat(log_w) - float(expected)) < 1e-6


def test_khat_ignores_scale_and_zero_weights():
    log_w = pareto_log_weights(0.5, 400, seed=1)
    assert abs(nvi.khat(log_w + 900.0) - nvi.khat(log_w)) < 1e-9
    assert nvi.khat(np.append(log_w, [-np.inf] * 30)) == nvi.khat(log_w)


def test_khat_of_degenerate_weights():
    """Too few weights for a tail say so; equal weights have the lightest tail there is."""
    assert math.isnan(nvi.khat(np.zeros(10)))
    assert nvi.khat(np.zeros(100)) == -math.inf
    # Ten batches with one weight each, as after resampling: no tail that could be fitted.
    batches = np.repeat(np.linspace(0.0, 0.1, 10), 200)
    assert nvi.khat(batches) == -math.inf
    for noise in (1e-8, 1e-6, 1e-4):
        assert (
            nvi.khat(batches + noise * np.random.default_rng(0).standard_normal(2000)) == -math.inf
        )
    # One weight above all is a tail, however alike the others are.
    assert nvi.khat(np.append(batches, 20.0)) > 0.7


@pytest.mark.parametrize("shape", [0.2, 0.4])
def test_what_a_pareto_tail_has_beyond_the_largest_weight(shape):
    """Of w = U^-k the share of the mean that is above m is m^(1 − 1/k). Over many samples the
    median of the estimate is that of the truth, up to what k̂ does not know.
    """
    rng, num = np.random.default_rng(6), 4000
    log_w = -shape * np.log(rng.uniform(size=(200, num)))
    true = np.exp((1 - 1 / shape) * log_w.max(axis=1))
    said = np.array([beyond_largest(row) for row in log_w])
    assert 0.5 < np.median(said) / np.median(true) < 2


def test_light_tails_have_nothing_there():
    assert beyond_largest(np.zeros(1000)) == 0.0
    bounded = np.log(np.random.default_rng(7).uniform(size=4000))
    assert beyond_largest(bounded) < 1e-3


def test_the_variance_of_a_mean_over_its_square():
    """Of weights 1 and 3: the mean is 2, the variance 1, and there are two of them."""
    np.testing.assert_allclose(relative_variance(np.log([1.0, 3.0])), 1 / 4 / 2)
    assert relative_variance(np.full(5, -np.inf)) == 0.8


def test_families_are_counted_batch_by_batch():
    assert num_families(np.array([3, 3, 5, 7, 8, 9]), 2).tolist() == [2, 3]


def test_weights_for_a_fit_are_cut_at_the_mean_times_a_root():
    """One weight of e⁹ among a hundred: a tenth before the weights are made to sum to one again. In
    either library, batch by batch.
    """
    log_w = np.zeros((2, 100))
    log_w[0, 3] = 9.0
    w_bar = normalise_cut(log_w)
    rest = 99 / (np.exp(9.0) + 99)
    np.testing.assert_allclose(w_bar[0, 3], 0.1 / (0.1 + rest), rtol=1e-12)
    np.testing.assert_allclose(w_bar[1], 0.01, rtol=1e-12)
    np.testing.assert_allclose(normalise_cut(jnp.asarray(log_w)), w_bar, rtol=1e-5)
