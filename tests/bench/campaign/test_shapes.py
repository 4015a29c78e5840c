"""The campaign's densities against SciPy's, and their moments."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestedvi.bench.campaign import shapes
from nestedvi.targets import Funnel

RNG = np.random.default_rng(0)


def value(case, z):
    return float(case.model(jnp.asarray(z)))


def test_mixtures_are_normalised_and_have_their_moments(x64):
    means, sds, weights = np.array([[0.0, 1.0], [3.0, -1.0]]), np.array([1.0, 0.2]), [0.25, 0.75]
    case = shapes.gaussians(means, sds, np.array(weights))
    z = np.array([2.8, -0.9])
    parts = [
        w * stats.multivariate_normal(m, s**2 * np.eye(2)).pdf(z)
        for w, m, s in zip(weights, means, sds, strict=True)
    ]
    assert value(case, z) == pytest.approx(np.log(sum(parts)))
    draws = RNG.normal(size=(200_000, 2))
    which = (RNG.uniform(size=200_000) < 0.75).astype(int)
    draws = means[which] + sds[which, None] * draws
    mean, sd = case.means["z"]
    np.testing.assert_allclose(mean, draws.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(sd, draws.std(axis=0), rtol=0.02)


def test_spikes_slabs_and_pairs(x64):
    """At the centre of a spike and far from it, and at both of two modes."""
    spike = shapes.spike_and_slab(4, 0.01, 0.9)
    centre = 0.9 * (2 * np.pi * 1e-4) ** -2 + 0.1 * (2 * np.pi) ** -2
    assert value(spike, np.zeros(4)) == pytest.approx(np.log(centre))
    pair = shapes.two_widths(8, 0.3, 12.0)
    place = np.full(8, 6 / np.sqrt(8))
    wide, narrow = value(pair, -place), value(pair, place)
    assert narrow - wide == pytest.approx(-8 * np.log(0.3))
    assert np.sqrt(8) * 2 * place[0] == pytest.approx(12.0)


def test_funnels_bananas_and_tails(x64):
    z = RNG.normal(size=10)
    assert value(shapes.funnel(10), z) == pytest.approx(float(Funnel().log_gamma(jnp.asarray(z))))
    bent = stats.norm(0, 2).logpdf(z[0]) + stats.norm(z[0] ** 2 / 2 - 2, 0.5).logpdf(z[1])
    assert value(shapes.banana(4), z[:4]) == pytest.approx(bent + stats.norm.logpdf(z[2:4]).sum())
    x0 = RNG.normal(0, 2, size=400_000)
    sds = shapes.banana(2).means["z"][1]
    assert np.hypot((x0**2 / 2).std(), 0.5) == pytest.approx(sds[1], rel=0.02)
    cauchy = shapes.students(10, 1, 0.0, 1.0)
    assert value(cauchy, z) == pytest.approx(stats.cauchy.logpdf(z).sum())


def test_turned_gaussians_keep_their_normaliser(x64):
    sds = np.array([0.1, 1.0, 10.0])
    case = shapes.gaussian(sds, True)
    q = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    covariance = q @ np.diag(sds**2) @ q.T
    z = RNG.normal(size=3)
    expected = stats.multivariate_normal(np.zeros(3), covariance).logpdf(z)
    assert value(case, z) == pytest.approx(expected)
    np.testing.assert_allclose(case.means["z"][1], np.sqrt(np.diag(covariance)))


def test_the_odd_ones(x64):
    wide = shapes.wide()
    assert value(wide, np.zeros(3)) - wide.log_Z == pytest.approx(
        3 * stats.norm(0, 1e26).logpdf(0.0)
    )
    corner = shapes.nan_corner()
    assert np.isnan(value(corner, np.full(5, 3.8))) and np.isfinite(value(corner, np.full(5, 3.6)))
    assert corner.log_Z == pytest.approx(np.log(stats.norm.cdf(stats.norm.isf(1e-4))))
    assert shapes.flat().log_Z is None and value(shapes.flat(), [7.0, 7.0, 0.0]) == 0.0


def test_the_eight_benchmarks_are_there():
    turned = shapes.SHAPES["funnel-rotated"].build()
    assert turned.log_Z == 0.0 and turned.options == {"dim": 10}
    assert shapes.SHAPES["ring"].build().log_Z == pytest.approx(np.log(8))
