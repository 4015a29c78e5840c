"""Logistic regressions on public tables: densities written out with SciPy, the scalings that their
docstrings name, and evidences by importance sampling around the mode.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import nestedvi as nvi
from nestedvi.targets.data import load_table

ONE_SCALE = {
    "german_credit": ("german-credit", 25, 1.0),
    "german_credit_raw": ("german-credit", 25, 1.0),
    "german_credit_wide": ("german-credit", 25, 10.0),
    "ionosphere": ("ionosphere", 35, 1.0),
    "sonar": ("sonar", 61, 1.0),
}


def log_likelihood(features, positive, w):
    odds = features @ w
    return stats.bernoulli.logpmf(positive, 1 / (1 + np.exp(-odds))).sum()


@pytest.mark.parametrize("name", ONE_SCALE)
def test_the_density_and_its_scaling(name, x64):
    """Features by NumPy from the table, prior and likelihood by SciPy."""
    table, dim, scale = ONE_SCALE[name]
    *columns, label = load_table(table).T
    columns = np.array(columns)
    if name == "german_credit_wide":
        columns = columns / columns.std(axis=1, keepdims=True)
    elif name != "german_credit_raw":
        centred = columns - columns.mean(axis=1, keepdims=True)
        columns = np.array([x / x.std() if x.any() else x for x in centred])
    features = np.vstack([np.ones(len(label)), columns]).T
    density = getattr(nvi.targets, name)()
    for w in (
        0.2
        * np.random.default_rng(0).normal(size=(3, dim))
        / np.maximum(1, abs(features).mean(axis=0))
    ):
        by_hand = log_likelihood(features, label == 1, w)
        by_hand += stats.norm.logpdf(w, 0, scale).sum()
        np.testing.assert_allclose(density.log_gamma(jnp.asarray(w)), by_hand, rtol=1e-9)


def test_a_constant_feature_says_nothing(x64):
    """The second feature of ionosphere is zero in every row."""
    density = nvi.targets.ionosphere()
    slope = jax.grad(density.log_gamma)(jnp.full(35, 0.3))
    np.testing.assert_allclose(slope[2], -0.3, rtol=1e-12)


def test_a_scale_for_all_weights_by_hand(x64):
    features, good = standardised_credit()
    density = nvi.targets.HierarchicalCredit()
    for z in 0.3 * np.random.default_rng(1).normal(size=(3, 26)):
        variance, w = np.exp(z[0]), z[1:]
        by_hand = stats.expon.logpdf(variance, scale=100) + z[0]
        by_hand += stats.norm.logpdf(w, 0, variance**0.5).sum() + log_likelihood(features, good, w)
        np.testing.assert_allclose(density.log_gamma(jnp.asarray(z)), by_hand, rtol=1e-10)


def test_a_scale_for_each_weight_by_hand(x64):
    features, good = standardised_credit()
    density = nvi.targets.SparseCredit()
    for z in 0.3 * np.random.default_rng(2).normal(size=(3, 51)):
        scales, b = np.exp(z[:26]), z[26:]
        by_hand = stats.gamma.logpdf(scales, 0.5, scale=2).sum() + z[:26].sum()
        by_hand += stats.norm.logpdf(b).sum()
        by_hand += log_likelihood(features, good, scales[0] * scales[1:] * b)
        np.testing.assert_allclose(density.log_gamma(jnp.asarray(z)), by_hand, rtol=1e-10)


def standardised_credit():
    *columns, label = load_table("german-credit").T
    columns = [(x - x.mean()) / x.std() for x in columns]
    return np.column_stack([np.ones(len(label)), *columns]), label == 1


@pytest.mark.parametrize(
    "name", ["german-credit", "german-credit-raw", "german-credit-wide", "ionosphere"]
)
def test_log_Z_by_importance_sampling(name, x64):
    """Around the mode, from a t distribution with the mode's curvature: a third way, where there is
    a number at all.
    """
    target = nvi.targets.get_target(name)
    if target.log_Z is None:
        pytest.skip("not measured")
    estimate, error = importance_log_Z(target.build(), target.dim)
    stderr = nvi.targets.EVIDENCES[name].stderr
    assert error < 0.1 and abs(estimate - target.log_Z) < 4 * np.hypot(error, stderr)


def importance_log_Z(density, dim, num=20_000):
    negative = jax.jit(jax.value_and_grad(lambda z: -density.log_gamma(z)))
    mode = optimize.minimize(
        lambda z: [np.asarray(x) for x in negative(z)], np.zeros(dim), jac=True, method="BFGS"
    ).x
    curvature = np.asarray(jax.hessian(lambda z: -density.log_gamma(z))(jnp.asarray(mode)))
    proposal = stats.multivariate_t(mode, np.linalg.inv(curvature), df=15, seed=3)
    z = proposal.rvs(num)
    log_w = np.asarray(jax.jit(jax.vmap(density.log_gamma))(jnp.asarray(z))) - proposal.logpdf(z)
    w = np.exp(log_w - log_w.max())
    return log_w.max() + np.log(w.mean()), w.std() / w.mean() / np.sqrt(num)
