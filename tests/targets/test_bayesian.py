"""Posteriors as targets: densities written out with SciPy, evidences by other means."""

import json
import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import nestedvi as nvi
from nestedvi.targets.data import BROWNIAN_OBSERVED, SEEDS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_brownian_against_scipy(x64):
    """Prior, walk and observations written out with scipy, and the evidence by the multivariate
    normal of the observed places.
    """
    rng = np.random.default_rng(4)
    seen = ~np.isnan(BROWNIAN_OBSERVED)
    assert seen.sum() == 20 and not seen[10:20].any()
    for z in rng.normal(size=(5, 32)) * [3, 3, *[1] * 30]:
        scales, x = np.log1p(np.exp(z[:2])), z[2:]
        by_hand = stats.lognorm(2.0).logpdf(scales).sum() - np.log1p(np.exp(-z[:2])).sum()
        by_hand += stats.norm(np.r_[0.0, x[:-1]], scales[0]).logpdf(x).sum()
        by_hand += stats.norm(x[seen], scales[1]).logpdf(BROWNIAN_OBSERVED[seen]).sum()
        np.testing.assert_allclose(
            nvi.targets.Brownian().log_gamma(jnp.asarray(z)), by_hand, rtol=1e-10
        )
    times = np.arange(1, 31)[seen]
    spectrum, basis = np.linalg.eigh(np.minimum.outer(times, times).astype(float))
    log_sigma, log_tau = np.meshgrid(*[np.linspace(-12, 8, 401)] * 2)
    variance = np.exp(2 * log_sigma)[..., None] * spectrum + np.exp(2 * log_tau)[..., None]
    log_y = stats.norm(0, np.sqrt(variance)).logpdf(basis.T @ BROWNIAN_OBSERVED[seen]).sum(axis=-1)
    log_joint = log_y + stats.norm(0, 2).logpdf(log_sigma) + stats.norm(0, 2).logpdf(log_tau)
    assert (
        abs(np.log(np.exp(log_joint).sum() * 0.05**2) - nvi.targets.get_target("brownian").log_Z)
        < 1e-6
    )


def test_brownian_is_never_nan():
    """Scales that underflow are merely unlikely."""
    z = jnp.zeros(32).at[:2].set(-200.0)
    assert not jnp.isnan(nvi.targets.Brownian().log_gamma(z)) and not jnp.isnan(
        nvi.targets.Brownian().log_gamma(z + 1.0)
    )


def test_breast_cancer(x64):
    """The log density by hand, and log Z by importance sampling around the mode: a t distribution
    with the mode's curvature.
    """
    pytest.importorskip("sklearn")
    target = nvi.targets.get_target("breast-cancer")
    density = target.build()
    signed = np.asarray(density.signed)
    assert signed.shape == (569, 31) and set(abs(signed[:, 0])) == {1.0}
    unsigned = signed[:, 1:] * signed[:, :1]
    np.testing.assert_allclose(unsigned.std(axis=0), 1.0)
    assert unsigned.mean(axis=0).min() > 0.5, "not centred"
    z = np.random.default_rng(5).normal(size=31)
    by_hand = -np.log1p(np.exp(-signed @ z)).sum() + stats.norm.logpdf(z).sum()
    np.testing.assert_allclose(density.log_gamma(jnp.asarray(z)), by_hand, rtol=1e-10)

    negative = jax.jit(lambda z: -density.log_gamma(z))
    mode = optimize.minimize(
        negative, np.zeros(31), jac=jax.jit(jax.grad(negative)), method="BFGS"
    ).x
    covariance = np.linalg.inv(np.asarray(jax.hessian(negative)(jnp.asarray(mode))))
    proposal = stats.multivariate_t(mode, 1.2 * covariance, df=8, seed=6)
    draws = proposal.rvs(50_000)
    log_w = np.asarray(jax.jit(jax.vmap(density.log_gamma))(jnp.asarray(draws))) - proposal.logpdf(
        draws
    )
    w = np.exp(log_w - log_w.max())
    estimate, error = log_w.max() + np.log(w.mean()), w.std() / w.mean() / np.sqrt(len(w))
    assert error < 0.15 and abs(estimate - target.log_Z) < 4.5 * error


def test_missing_scikit_learn_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"scikit-learn; pip install 'nestedvi\[targets\]'"):
        nvi.targets.get_target("breast-cancer").build()


def test_a_logistic_regressions_labels_are_signs(x64):
    """Labels 0/1 and −1/1 say the same; the density by hand."""
    features, labels = np.array([[1.0, 0.5], [1.0, -2.0]]), np.array([1, 0])
    z = np.array([0.3, -0.8])
    by_hand = -np.log1p(np.exp(-np.array([1, -1]) * (features @ z))).sum()
    by_hand += stats.norm.logpdf(z).sum()
    for given in (labels, 2 * labels - 1):
        density = nvi.targets.LogisticRegression(features, given)
        np.testing.assert_allclose(density.log_gamma(jnp.asarray(z)), by_hand, rtol=1e-12)


def test_seeds_against_scipy(x64):
    """Priors, effects and counts written out; log odds of a plate by its variety and extract."""
    rng = np.random.default_rng(8)
    r, n, x1, x2 = SEEDS.T
    assert SEEDS.shape == (21, 4) and (r <= n).all() and n.sum() == 831 and r.sum() == 424
    for z in rng.normal(size=(4, 26)):
        tau, a, b = np.exp(z[0]), z[1:5], z[5:]
        by_hand = stats.gamma.logpdf(tau, 0.01, scale=100) + z[0]
        by_hand += stats.norm.logpdf(a, 0, 10).sum() + stats.norm.logpdf(b, 0, tau**-0.5).sum()
        odds = a[0] + a[1] * x1 + a[2] * x2 + a[3] * x1 * x2 + b
        by_hand += stats.binom.logpmf(r, n, 1 / (1 + np.exp(-odds))).sum()
        found = nvi.targets.Seeds().log_gamma(jnp.asarray(z))
        np.testing.assert_allclose(found, by_hand, rtol=1e-10)


def test_the_recorded_log_Z_of_seeds_is_the_tables():
    recorded = json.loads((BENCHMARKS.parent / "results/bench/seeds-log-Z.json").read_text())
    assert abs(recorded["log_Z"] - nvi.targets.get_target("seeds").log_Z) < 1e-6
    assert abs(recorded["log_Z"] - recorded["coarser"]) < 1e-5


@pytest.mark.slow
def test_log_Z_of_seeds_by_a_coarse_quadrature(x64):
    quadrature = runpy.run_path(str(BENCHMARKS / "seeds_log_Z.py"))
    assert abs(quadrature["log_Z"](4, 29) - nvi.targets.get_target("seeds").log_Z) < 1e-3
