"""f-divergences as functions of the log ratio: closed forms, derivatives, non-negativity, names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.divergences.exact import conjugate
from nestedvi.divergences.f import get_divergence
from tests.helpers.closed_forms import CASES, NAMES
from tests.helpers.properties import given, settings, st

L = np.linspace(-4.0, 4.0, 33)
STEP = 1e-4


def central(F, l):
    """First and second derivatives by central differences, and their error bound at this step."""
    first = (F(l + STEP) - F(l - STEP)) / (2 * STEP)
    return first, (F(l + STEP) - 2 * F(l) + F(l - STEP)) / STEP**2


@pytest.mark.parametrize("name", NAMES)
def test_value_and_derivatives(name, x64):
    """F(l) = f(e^l), g = F', and the landing coefficient F' − F''."""
    library, f = CASES[name][0](), CASES[name][1]

    def F(l):
        return f(jnp.exp(l))

    first, second = central(F, jnp.asarray(L))
    np.testing.assert_allclose(
        jax.vmap(library.value)(jnp.asarray(L)), F(jnp.asarray(L)), atol=1e-12
    )
    np.testing.assert_allclose(library.slope(jnp.asarray(L)), first, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        library.landing_slope(jnp.asarray(L)), first - second, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", NAMES)
def test_conjugate_exchanges_the_sides(name, x64):
    """f*(u) = u f(1/u), with its derivatives; the two KLs are each other's."""
    library, f = conjugate(CASES[name][0]()), CASES[name][1]

    def F(l):
        return jnp.exp(l) * f(jnp.exp(-l))

    first, second = central(F, jnp.asarray(L))
    np.testing.assert_allclose(
        jax.vmap(library.value)(jnp.asarray(L)), F(jnp.asarray(L)), atol=1e-12
    )
    np.testing.assert_allclose(library.slope(jnp.asarray(L)), first, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(
        library.landing_slope(jnp.asarray(L)), first - second, rtol=1e-4, atol=1e-4
    )


def test_kls_are_conjugate():
    assert isinstance(conjugate(nvi.ReverseKL()), nvi.ForwardKL) and isinstance(
        conjugate(nvi.ForwardKL()), nvi.ReverseKL
    )


@pytest.mark.parametrize("name", NAMES)
def test_equal_densities_have_no_divergence(name):
    assert float(CASES[name][0]().value(jnp.zeros(()))) == pytest.approx(0.0, abs=1e-7)


LOGITS = st.lists(st.floats(-6, 6), min_size=4, max_size=4)


@settings(max_examples=60, deadline=None)
@given(p=LOGITS, q=LOGITS)
def test_never_negative(p, q):
    """Jensen: E_q[f(p/q)] ≥ f(1) = 0 for any two distributions."""
    log_p, log_q = (np.asarray(x) - np.logaddexp.reduce(x) for x in (p, q))
    for value in _VALUES(jnp.asarray(log_p - log_q)):
        assert np.sum(np.exp(log_q) * np.asarray(value, dtype=np.float64)) > -1e-4


_VALUES = jax.jit(lambda l: [jax.vmap(CASES[name][0]().value)(l) for name in NAMES])


@pytest.mark.parametrize("name", NAMES)
def test_extreme_ratios_in_float32(name):
    """A ratio of zero is legal: f, g and the landing coefficient have limits there, and none may
    overflow on the way.
    """
    library = CASES[name][0]()
    zero = jnp.array([-jnp.inf, -300.0, -90.0, -60.0], jnp.float32)
    if name == "reverse-kl":
        np.testing.assert_array_equal(library.landing_slope(zero), -np.ones(4))
        return
    limit = CASES[name][1](jnp.float32(1e-30))
    np.testing.assert_allclose(jax.vmap(library.value)(zero), limit, atol=1e-6)
    np.testing.assert_allclose(library.slope(zero), 0.0, atol=1e-6)
    np.testing.assert_allclose(library.landing_slope(zero), 0.0, atol=1e-6)
    if name != "forward-kl":
        # Far above one the true values leave float32; what is returned must not turn into NaN or
        # infinity.
        assert (
            np.isfinite(library.slope(-zero)).all()
            and np.isfinite(library.landing_slope(-zero)).all()
        )


def test_alpha_limits(x64):
    """α → 1 is forward KL up to a term of mean zero, α → 0 reverse KL, α = 2 half of χ²."""
    l = jnp.asarray(L)
    two = jax.vmap(nvi.divergences.alpha_divergence(2.0).value)(l)
    np.testing.assert_allclose(
        two, 0.5 * jax.vmap(nvi.divergences.chi_squared().value)(l), rtol=1e-10
    )
    near_one = jax.vmap(nvi.divergences.alpha_divergence(1 + 1e-6).value)(l)
    np.testing.assert_allclose(
        near_one, jax.vmap(nvi.ForwardKL().value)(l) - (jnp.exp(l) - 1), rtol=1e-3, atol=1e-3
    )
    near_zero = jax.vmap(nvi.divergences.alpha_divergence(1e-6).value)(l)
    np.testing.assert_allclose(near_zero, -l + (jnp.exp(l) - 1), rtol=1e-3, atol=1e-3)
    assert (
        float(jnp.max(jax.vmap(nvi.divergences.jensen_shannon().value)(l) / (1 + jnp.exp(l))))
        <= np.log(2) / 2 + 1e-12
    )


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_alpha_names_the_kl(alpha):
    with pytest.raises(ValueError, match="ForwardKL" if alpha else "ReverseKL"):
        nvi.divergences.alpha_divergence(alpha)


def test_names():
    for name in nvi.divergences.DIVERGENCES:
        assert isinstance(get_divergence(name), nvi.AbstractDivergence)
    same = nvi.ForwardKL()
    assert get_divergence(same) is same
    with pytest.raises(nvi.errors.UnknownNameError, match="reverse-kl"):
        get_divergence("reverse_kl")
