"""The factors of the BGMM-VAE against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from nestedvi.kernels.base import Context
from nestedvi.paper.bgmm_vae.parts import (
    Assign,
    Classify,
    Coded,
    Encode,
    Mixture,
    Proportions,
    count,
    draw_categorical,
)
from tests.helpers.small_bgmm import tiny

pytestmark = pytest.mark.usefixtures("x64")

NOTHING = Context(None, None)
GRID = np.linspace(-14.0, 14.0, 561)
STEP = GRID[1] - GRID[0]


def test_categorical_draws(key):
    probs, num = np.array([0.1, 0.0, 0.6, 0.3]), 20_000
    share = np.bincount(draw_categorical(key, jnp.asarray(probs), (num,)), minlength=4) / num
    assert (
        share[1] == 0
        and (np.abs(share - probs) < 5 * np.sqrt(probs * (1 - probs) / num) + 1e-12).all()
    )


def test_proportions_average_features_over_the_mini_batch(key):
    """The mean over clusters weighted by counts is the mean over the mini-batch, as the
    architecture says.
    """
    q, c = Proportions(4, 5, key=key), np.array([1, 3, 3, 0, 3])
    onehot = np.eye(4)[c]
    mean = jnp.mean(jax.nn.silu(q.features(jnp.asarray(onehot))), axis=0)
    expected = jax.nn.softplus(q.out(jax.nn.silu(q.hidden(mean)))) + onehot.sum(axis=0)
    np.testing.assert_allclose(
        q.concentration(jnp.asarray(onehot.sum(axis=0))), expected, rtol=1e-12
    )


def test_assignments_are_independent():
    """p(c | λ) = Π λ_{c_n}, summed over all c to one."""
    lam, assign = jnp.array([0.2, 0.5, 0.3]), Assign(2)
    log_p = [assign.log_prob(jnp.array(c), lam, NOTHING) for c in np.ndindex(3, 3)]
    np.testing.assert_allclose(np.exp(log_p), np.outer(lam, lam).ravel(), rtol=1e-12)
    np.testing.assert_array_equal(count(jnp.array([2, 0, 2]), 3), [1, 0, 2])


def test_the_mixtures_components():
    """p(z | c) of every component is scipy's normal density."""
    mu, log_tau = jnp.array([[0.0, 1.0], [2.0, -1.0]]), jnp.array([[0.3, -0.2], [0.0, 1.0]])
    mixture, z = Mixture(mu, log_tau), jnp.array([0.4, -0.6])
    expected = stats.norm.logpdf(z, mu, np.exp(-0.5 * log_tau)).sum(axis=1)
    np.testing.assert_allclose(mixture.log_probs(z), expected, rtol=1e-12)
    np.testing.assert_allclose(mixture.log_prob(z, jnp.array(1), NOTHING), expected[1], rtol=1e-12)


@pytest.mark.slow
def test_the_marginal_sums_components_out():
    """Σ_c π_c p(z|c): it integrates to one and is the density of its own draws."""
    model = tiny()
    density = np.exp(jax.vmap(model.marginal.log_gamma)(GRID[:, None]))
    np.testing.assert_allclose(density.sum() * STEP, 1.0, rtol=1e-8)
    weights = special.softmax(np.asarray(model.pi_c_logits))
    scale = np.exp(-0.5 * np.asarray(model.mixture.log_tau))[:, 0]
    expected = sum(
        w * stats.norm.pdf(GRID, m, s)
        for w, m, s in zip(weights, model.mixture.mu[:, 0], scale, strict=True)
    )
    np.testing.assert_allclose(density, expected, rtol=1e-8, atol=1e-300)
    draws = jax.vmap(model.marginal.sample)(jax.random.split(jax.random.key(5), 4000))[:, 0]
    mean, variance = np.sum(GRID * expected) * STEP, np.sum(GRID**2 * expected) * STEP
    assert abs(draws.mean() - mean) < 5 * np.sqrt((variance - mean**2) / 4000)


def test_a_classifier_gives_probabilities_and_scores_them(key):
    classify, z = Classify(2, 3, 4, key=key), jnp.array([0.3, -0.8])
    log_q = classify.log_probs(z)
    np.testing.assert_allclose(special.logsumexp(log_q), 0.0, atol=1e-12)
    for c in range(3):
        np.testing.assert_allclose(classify.log_prob(jnp.array(c), z, NOTHING), log_q[c])


def test_a_codes_density_and_draw(key):
    """q(z | x) = N(loc, scale²), drawn as loc + scale ε."""
    coded = Coded(jnp.zeros((4, 4)), jnp.array([0.5, -1.0]), jnp.array([0.1, -0.7]))
    z = Encode().sample(key, coded, NOTHING)
    noise = jax.random.normal(key, (2,), z.dtype)
    np.testing.assert_allclose(z, coded.loc + np.exp(coded.log_scale) * noise, rtol=1e-12)
    expected = stats.norm.logpdf(z, coded.loc, np.exp(coded.log_scale)).sum()
    np.testing.assert_allclose(Encode().log_prob(z, coded, NOTHING), expected, rtol=1e-12)


def test_a_decoded_pixels_density_and_mean():
    """Continuous Bernoulli: p(x) = e^{ηx} η/(e^η − 1), with mean by quadrature over one pixel."""
    model, z = tiny(), jnp.array([0.7])
    eta = np.asarray(model.decode.network(z))
    x = np.full(eta.shape, 0.3)
    coded = Coded(jnp.asarray(x), z, z)
    expected = (eta * x - np.log(np.expm1(eta) / eta)).sum()
    np.testing.assert_allclose(model.decode.log_prob(coded, z, NOTHING), expected, rtol=1e-9)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    nodes, weights = 0.5 * (nodes + 1), 0.5 * weights
    density = np.exp(nodes * eta[..., None] - np.log(np.expm1(eta) / eta)[..., None])
    np.testing.assert_allclose(model.decode.mean(z), density @ (weights * nodes), rtol=1e-9)
