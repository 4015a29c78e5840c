"""The surrogate's coefficients by hand, on three weighted particles; its gradients on whole levels
are in the files beside this one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import nestedvi as nvi
from nestedvi.divergences.surrogate import coefficients, surrogate
from nestedvi.sampler.level import Terms

pytestmark = pytest.mark.usefixtures("x64")

LOG_V = np.array([0.3, -1.0, 2.0])
LOG_W = np.array([1.0, 0.2, -0.5])
W = special.softmax(LOG_W)
# log ṽ, with Z_k / Z_{k-1} estimated by Σ w̄ v.
L = LOG_V - np.log(W @ np.exp(LOG_V))


def coefficients_of(divergence, log_v=LOG_V, log_w=LOG_W, baseline=False, hold_q=False):
    return coefficients(
        divergence, jnp.asarray(log_v), jnp.asarray(log_w), baseline=baseline, hold_q=hold_q
    )


@pytest.mark.parametrize(
    ("divergence", "f", "g", "landing"),
    [
        # f(w) = −log w, F(l) = −l; f(w) = w log w, F(l) = l e^l.
        (nvi.ReverseKL(), -L, -np.ones(3), -np.ones(3)),
        (nvi.ForwardKL(), L * np.exp(L), (1 + L) * np.exp(L), -np.exp(L)),
    ],
)
def test_every_row_of_the_module_text(divergence, f, g, landing):
    c = coefficients_of(divergence)
    np.testing.assert_allclose(c.direct, W * g, rtol=1e-12)
    np.testing.assert_allclose(c.pathwise, W * landing, rtol=1e-12)
    np.testing.assert_allclose(c.normaliser, -(W @ g) * special.softmax(LOG_W + LOG_V), rtol=1e-12)
    np.testing.assert_allclose(c.gamma_prev, W * (f - g - W @ (f - g)), rtol=1e-10)
    np.testing.assert_allclose(c.score, W * f, rtol=1e-12)
    np.testing.assert_allclose(c.divergence, W @ f, rtol=1e-12)


@pytest.mark.parametrize("hold_q", [False, True])
def test_the_baseline_is_the_mean_over_the_other_particles(hold_q):
    """Of f where log q is held, of f − g where its own gradient takes part."""
    f, g = L * np.exp(L), (1 + L) * np.exp(L)
    signal = f if hold_q else f - g
    others = [np.average(np.delete(signal, i), weights=np.delete(W, i)) for i in range(3)]
    c = coefficients_of(nvi.ForwardKL(), baseline=True, hold_q=hold_q)
    np.testing.assert_allclose(c.score, W * (f - others), rtol=1e-10)


def test_equal_weights_have_no_divergence():
    """Where v is constant nothing is left to learn about γ_{k-1}."""
    c = coefficients_of(nvi.ReverseKL(), log_v=np.full(3, 0.7))
    np.testing.assert_allclose([c.divergence, *c.gamma_prev], 0.0, atol=1e-12)


def test_a_particle_of_no_weight_is_silent():
    """Whatever its v is, NaN included, the others' coefficients are as without it."""
    with_dead = coefficients_of(
        nvi.ForwardKL(), np.append(LOG_V, np.nan), np.append(LOG_W, -np.inf), baseline=True
    )
    without = coefficients_of(nvi.ForwardKL(), baseline=True)
    for got, want in zip(with_dead[:5], without[:5], strict=True):
        np.testing.assert_allclose(got[:3], want, rtol=1e-12)
        assert got[3] == 0
    np.testing.assert_allclose(with_dead.divergence, without.divergence, rtol=1e-12)


def test_an_excluded_particle_makes_the_reverse_kl_infinite_and_its_gradient_finite():
    c = coefficients_of(nvi.ReverseKL(), log_v=np.array([0.3, -np.inf, 2.0]))
    assert np.isposinf(c.divergence)
    assert all(np.isfinite(x).all() for x in c[:5])


def test_each_factor_gets_its_coefficient():
    """The derivative with respect to each factor of v, and none through the coefficients."""
    names = ("log_gamma_prev", "log_gamma", "log_gamma_at", "log_q", "log_r", "log_q_score")
    zero = jnp.zeros(3)
    factors = {name: zero for name in names} | {"log_gamma": jnp.asarray(LOG_V)}

    def value(factors):
        terms = Terms(z=zero, stats=zero, log_v_pathwise=None, **factors)
        return surrogate(nvi.ForwardKL(), terms, jnp.asarray(LOG_W))[0]

    c = coefficients_of(nvi.ForwardKL(), baseline=True)
    expected = (c.gamma_prev, c.direct, c.normaliser, -c.direct, c.direct, c.score)
    slopes = jax.grad(value)(factors)
    for name, want in zip(names, expected, strict=True):
        np.testing.assert_allclose(slopes[name], want, rtol=1e-12, err_msg=name)
