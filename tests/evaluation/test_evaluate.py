"""Evaluation against closed forms: every density and kernel here is Gaussian, so that every
expectation is known.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi

LOG_Z = 0.7
BASE_SCALE = 2.0
MEAN, SCALE = 1.0, 1.0


def linear(slope, shift, scale):
    """A stack of kernels N(slope z + shift, scale²), one a level."""

    def as_rows(x):
        return jnp.asarray(x, jnp.float32)[:, None]

    return nvi.kernels.GaussianKernel(as_rows(slope), as_rows(shift), jnp.log(as_rows(scale)))


def sampler(forward, reverse, target=None, betas=(0.0, 1.0), resampling=None):
    base = nvi.DiagonalNormal(jnp.zeros(1), BASE_SCALE)
    target = (
        nvi.densities.Scaled(nvi.DiagonalNormal(jnp.full(1, MEAN), SCALE), LOG_Z)
        if target is None
        else target
    )
    path = nvi.Annealing(base, target, nvi.GivenSchedule(betas))
    return nvi.NestedSampler(
        base, path, nvi.Stacked(nvi.Transition(linear(*forward), linear(*reverse))), resampling
    )


# One move, z_2 = z_1/2 + 1/2 + 0.8 ε, with the exact reverse kernel: importance sampling from the
# marginal N(1/2, 1.64).
SLOPE, SHIFT, NOISE = 0.5, 0.5, 0.8
VARIANCE = SLOPE**2 * BASE_SCALE**2 + NOISE**2
GAIN = SLOPE * BASE_SCALE**2 / VARIANCE
BACK = np.sqrt(BASE_SCALE**2 - GAIN**2 * VARIANCE)


def exact_reverse():
    return sampler(([SLOPE], [SHIFT], [NOISE]), ([GAIN], [-GAIN * SHIFT], [BACK]))


def log_normal(x, mean, variance):
    return -0.5 * (x - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)


def weight(z):
    """w = γ(z)/q(z), once the reverse kernel has cancelled."""
    return np.exp(LOG_Z + log_normal(z, MEAN, SCALE**2) - log_normal(z, SHIFT, VARIANCE))


def gauss_hermite(mean, variance, num=80):
    nodes, weights = np.polynomial.hermite_e.hermegauss(num)
    return mean + np.sqrt(variance) * nodes, weights / weights.sum()


def expect_two(fn, first, second):
    """E[fn(w, w')] for z, z' drawn from two Gaussians, by quadrature."""
    (z, p), (y, q) = gauss_hermite(*first), gauss_hermite(*second)
    return float(np.sum(p[:, None] * q * fn(weight(z)[:, None], weight(y))))


PROPOSAL, TARGET = (SHIFT, VARIANCE), (MEAN, SCALE**2)


@pytest.fixture(scope="module")
def pairs():
    """Many batches of two particles: small enough for quadrature over all of a batch's
    randomness.
    """
    return nvi.evaluate(jax.random.key(3), exact_reverse(), num_particles=2, num_batches=20_000)


def within(value, stderr, truth, errors=4.5):
    assert abs(value - truth) < errors * stderr, f"{value} ± {stderr}, expected {truth}"


def test_log_Z_of_a_gaussian(pairs):
    within(pairs.log_Z, pairs.log_Z_stderr, LOG_Z)
    assert pairs.log_Z_stderr < 0.02
    assert (pairs.num_particles, pairs.num_batches) == (2, 20_000)


def test_lower_bound_is_the_mean_of_log_estimates(pairs):
    truth = expect_two(lambda a, b: np.log((a + b) / 2), PROPOSAL, PROPOSAL)
    assert truth < LOG_Z
    within(pairs.lower_bound, pairs.lower_bound_stderr, truth)


def test_upper_bound_has_one_exact_particle(pairs):
    truth = expect_two(lambda a, b: np.log((a + b) / 2), TARGET, PROPOSAL)
    assert truth > LOG_Z
    within(pairs.upper_bound, pairs.upper_bound_stderr, truth)


def test_ess_of_pairs(pairs):
    truth = expect_two(lambda a, b: (a + b) ** 2 / (a**2 + b**2), PROPOSAL, PROPOSAL)
    within(pairs.ess, pairs.ess_stderr, truth)
    np.testing.assert_allclose(pairs.ess_percent, 50 * pairs.ess, rtol=1e-5)
    np.testing.assert_allclose(pairs.level_ess, [2.0, pairs.ess], rtol=1e-5)


def test_standard_errors_are_calibrated():
    """(log Ẑ − log Z)/stderr has a mean square near 1 over independent evaluations, and so have the
    bounds' errors.
    """
    problem = exact_reverse()
    lower = expect_two(lambda a, b: np.log((a + b) / 2), PROPOSAL, PROPOSAL)
    upper = expect_two(lambda a, b: np.log((a + b) / 2), TARGET, PROPOSAL)
    scores = []
    for key in jax.random.split(jax.random.key(4), 100):
        e = nvi.evaluate(key, problem, num_particles=2, num_batches=200)
        values = np.array([e.log_Z - LOG_Z, e.lower_bound - lower, e.upper_bound - upper])
        scores.append(values / [e.log_Z_stderr, e.lower_bound_stderr, e.upper_bound_stderr])
    square = np.mean(np.square(scores), axis=0)
    # The mean of 100 squares of a standard normal has standard deviation √(2/100).
    assert (abs(square - 1) < 5 * np.sqrt(2 / 100)).all(), square


# Two moves with reverse kernels that do not fit: chains of three Gaussians, still jointly Gaussian
# in both directions.
FORWARD = ([0.7, 0.5], [0.2, 0.4], [0.9, 0.8])
REVERSE = ([0.8, 0.6], [0.1, -0.3], [1.3, 1.1])
BETAS = (0.0, 0.4, 1.0)


def chain(mean, variance, kernels):
    """Mean and covariance of a start and of the states that a list of (slope, shift, scale) kernels
    leads to.
    """
    means, matrix, noise = [mean], [[1.0]], [np.sqrt(variance)]
    for slope, shift, scale in kernels:
        means.append(slope * means[-1] + shift)
        matrix = [*[[*row, 0.0] for row in matrix], [*(slope * np.array(matrix[-1])), 1.0]]
        noise.append(scale)
    factor = np.array(matrix) * noise
    return np.array(means), factor @ factor.T


def kl(p, q):
    """KL(p ‖ q) of two Gaussians."""
    (m, a), (n, b) = p, q
    gap = n - m
    trace = np.trace(np.linalg.solve(b, a))
    return 0.5 * (
        trace
        + gap @ np.linalg.solve(b, gap)
        - len(m)
        + np.linalg.slogdet(b)[1]
        - np.linalg.slogdet(a)[1]
    )


def backwards(result):
    means, covariance = result
    return means[::-1], covariance[::-1, ::-1]


def annealed(beta):
    """Mean and variance of N(0, 4)^{1-β} N(1, 1)^β."""
    precision = (1 - beta) / BASE_SCALE**2 + beta / SCALE**2
    return beta * MEAN / SCALE**2 / precision, 1 / precision


def kernels(parts):
    return list(zip(*parts, strict=True))


def test_bounds_of_single_chains():
    """With one particle a batch the bounds are log Z ∓ the KL between the forward and the reverse
    chain.
    """
    e = nvi.evaluate(
        jax.random.key(5),
        sampler(FORWARD, REVERSE, betas=BETAS),
        num_particles=1,
        num_batches=20_000,
    )
    there = chain(0.0, BASE_SCALE**2, kernels(FORWARD))
    back = backwards(chain(MEAN, SCALE**2, kernels(REVERSE)[::-1]))
    within(e.lower_bound, e.lower_bound_stderr, LOG_Z - kl(there, back))
    within(e.upper_bound, e.upper_bound_stderr, LOG_Z + kl(back, there))
    assert e.ess == 1.0


@pytest.mark.parametrize(
    "resampling", [None, nvi.Resampling("systematic", "always")], ids=["weighted", "resampled"]
)
def test_divergences_of_each_level(resampling):
    """KL(π̂_k ‖ π̌_k) and KL(π̌_k ‖ π̂_k), π̂_k = π_{k-1} q_k, π̌_k = π_k r_{k-1}; estimates of the
    order of 0.1 to a few percent.
    """
    problem = sampler(FORWARD, REVERSE, betas=BETAS, resampling=resampling)
    e = nvi.evaluate(jax.random.key(6), problem, num_particles=4000, num_batches=25)
    for k in (1, 2):
        there = chain(*annealed(BETAS[k - 1]), kernels(FORWARD)[k - 1 : k])
        back = backwards(chain(*annealed(BETAS[k]), kernels(REVERSE)[k - 1 : k]))
        # 100 000 weighted draws of log v, whose spread is about √(2 KL), with an effective share of
        # at least a fifth.
        for got, truth in (
            (e.level_kl_reverse[k], kl(there, back)),
            (e.level_kl_forward[k], kl(back, there)),
        ):
            assert abs(got - truth) < 5 * np.sqrt(2 * truth) / np.sqrt(20_000) + 1e-3, (
                k,
                got,
                truth,
            )
    assert abs(e.level_kl_reverse[0]) < 1e-6 and abs(e.level_kl_forward[0]) < 1e-6
    within(e.log_Z, e.log_Z_stderr, LOG_Z)


def test_what_cannot_be_known_is_not_invented():
    """No upper bound without exact draws from the target, no standard error from a single batch."""
    target = nvi.Density(lambda z: -0.5 * jnp.sum((z - 1) ** 2))
    problem = sampler(([SLOPE], [SHIFT], [NOISE]), ([GAIN], [-GAIN * SHIFT], [BACK]), target)
    e = nvi.evaluate(jax.random.key(7), problem, num_particles=4, num_batches=1)
    assert e.upper_bound is None and e.upper_bound_stderr is None
    assert (
        np.isfinite(e.log_Z)
        and np.isnan([e.log_Z_stderr, e.lower_bound_stderr, e.ess_stderr]).all()
    )


def broken(fn):
    """A move by 10 to the right of the base, where the target is `fn`."""
    return sampler(([1.0], [10.0], [0.1]), ([1.0], [-10.0], [0.1]), nvi.Density(fn))


def test_nan_is_named_by_level_and_count():
    """The base stays below 9, the move ends above 1 for all, and above 10 for about half of the
    particles.
    """
    everywhere = broken(lambda z: jnp.where(z[0] > -1e6, jnp.nan, 0.0) * z[0])
    with pytest.raises(
        nvi.errors.DensityError, match=r"Level 1: the log increment is NaN for 50 of 50 particles"
    ):
        nvi.evaluate(jax.random.key(8), everywhere, num_particles=50, num_batches=2)
    later = broken(lambda z: jnp.where(z[0] > 10.0, jnp.nan, 0.0))
    with pytest.raises(
        nvi.errors.DensityError,
        match=r"Level 2: the log increment is NaN for (1\d|2\d|3\d) of 50 particles",
    ):
        nvi.evaluate(jax.random.key(8), later, num_particles=50, num_batches=1)


def test_weights_that_all_vanish_are_said():
    with pytest.raises(nvi.errors.DensityError, match=r"Level 2: all 6 weights are zero"):
        nvi.evaluate(
            jax.random.key(9),
            broken(lambda z: jnp.where(z[0] > -1e6, -jnp.inf, 0.0)),
            num_particles=6,
            num_batches=2,
        )


@pytest.mark.parametrize("wrong", [{"num_particles": 0}, {"num_batches": 0}])
def test_counts_must_be_positive(wrong):
    with pytest.raises(ValueError, match=r"num_.* is 1 or more; got 0"):
        nvi.evaluate(jax.random.key(0), exact_reverse(), **wrong)
