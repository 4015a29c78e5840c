"""Answers made right in double precision, places where the density is no number, and mass at the
border of a support as single precision sees it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.special
from jax.flatten_util import ravel_pytree

import nestedvi as nvi
from nestedvi.densities.affine import AffineMap, Pullback
from nestedvi.densities.base import Density, log_values
from nestedvi.inference.answer import Answer, Request
from nestedvi.inference.exact import (
    RoundingError,
    check_rounding,
    exact_target,
    in_double,
    make_exact,
    missing_values,
    nothing,
    rounded_at_the_border,
)
from nestedvi.precision import double_precision


def shifted(z):
    """A constant that single precision rounds to a multiple of 64."""
    return jnp.sum(-0.5 * z**2) + 1e9 + 10.0


def test_the_density_is_traced_in_double_precision():
    exact = in_double(Density(shifted), jnp.zeros(2))
    with double_precision():
        assert float(exact.log_gamma(jnp.ones(2))) == 1e9 + 9.0
        target = exact_target(
            Pullback(Density(shifted), AffineMap(jnp.ones(2), jnp.full(2, 2.0))), exact
        )
        expected = 1e9 + 10.0 - 9.0 + 2 * np.log(2)
        assert float(target.log_gamma(jnp.ones(2))) == pytest.approx(expected, abs=1e-6)
    assert jnp.result_type(float) == jnp.float32


def test_a_density_that_insists_on_single_precision_has_none():
    assert in_double(Density(lambda z: jnp.sum(z).astype(jnp.float32)), jnp.zeros(2)) is None


def test_in_double_precision_there_is_nothing_to_do(x64):
    assert in_double(Density(shifted), jnp.zeros(2)) is None


def test_weights_become_those_of_the_exact_density():
    """Equal weights for a density with noise ε(z): after it log w is −ε and Ẑ the mean of e^−ε."""
    noise = lambda z: 0.05 * jnp.sin(40 * z[0])  # noqa: E731
    z = np.random.default_rng(0).normal(size=(40, 1)).astype(np.float32)
    with double_precision():
        exact = Density(lambda z: -0.5 * z[0] ** 2)
    rough = Density(lambda z: -0.5 * z[0] ** 2 + noise(z))
    answer = Answer(z, np.full(40, 2.0), 2.0, 0.0001, num_batches=4)
    request = Request(rough, 1, exact=exact)
    after = make_exact(answer, request)
    off = -np.asarray(jax.vmap(noise)(z), np.float64)
    np.testing.assert_allclose(after.log_w, 2 + off, atol=1e-5)
    assert after.log_Z == pytest.approx(2 + np.log(np.exp(off).mean()), abs=1e-5)
    Z_hat = np.exp(off).reshape(4, 10).mean(axis=1)
    stderr = Z_hat.std(ddof=1) / 2 / Z_hat.mean()
    assert after.log_Z_stderr == pytest.approx(max(stderr, 0.0001), rel=1e-3) and after.exact


@pytest.mark.parametrize(("scale", "coarse"), [(1e-9, True), (1e-3, False)])
def test_coordinates_that_are_too_coarse_for_a_narrow_density(scale, coarse):
    """Numbers of single precision around one are 6e-8 or more apart: for a Gaussian of scale 1e-9
    that is 60 standard deviations or more, although log γ of the particles is right.
    """
    density = Density(lambda z: -0.5 * ((z[0] - 1) / scale) ** 2)
    request = Request(density, 1, exact=in_double(density, jnp.zeros(1)))
    z = np.ones((20, 1), np.float32)
    if not coarse:
        check_rounding(request, z)
        return
    with pytest.raises(RoundingError):
        check_rounding(request, z)


def test_nan_among_the_particles_is_reported():
    z = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    answer = Answer(z, np.zeros(500), 0.0, 0.1)
    holes = Density(lambda z: jnp.where(z[0] > 2.0, jnp.nan, -0.5 * jnp.sum(z**2)))
    (sentence,) = missing_values(answer, Request(holes, 2))
    assert "NaN at" in sentence and "no mass" in sentence
    whole = Density(lambda z: -0.5 * jnp.sum(z**2))
    assert missing_values(answer, Request(whole, 2)) == ()


@pytest.mark.slow
@pytest.mark.parametrize("method, within", [("auto", 0.01), ("smc", 0.06)])
def test_counts_of_a_hundred_thousand(method, within):
    """Gamma-Poisson in closed form: single precision alone is off by several nats."""
    rng = np.random.default_rng(0)
    y = rng.poisson(1e5, size=300)

    def model(y):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 2e-5))
        numpyro.sample("y", dist.Poisson(rate), obs=y)

    a, b, total = 2.0, 2e-5, float(y.sum())
    truth = (
        a * np.log(b)
        - scipy.special.gammaln(a)
        + scipy.special.gammaln(a + total)
        - (a + total) * np.log(b + len(y))
        - scipy.special.gammaln(y + 1.0).sum()
    )
    posterior = nvi.sample(jax.random.key(0), model, model_args=(y,), method=method)
    assert abs(posterior.log_Z - truth) < within


def test_values_come_in_the_precision_of_the_particles():
    z = np.full((3, 1), 0.1)
    with double_precision():
        values = log_values(Density(lambda z: z[0]), z)
    np.testing.assert_array_equal(values, 0.1)


def sites():
    numpyro.sample("share", dist.Uniform(0.0, 1.0))
    numpyro.sample("beta", dist.Beta(0.05, 0.05))
    numpyro.sample("size", dist.HalfNormal(1.0))
    numpyro.sample("real", dist.Normal(0.0, 1.0))


def remarks(dtype=jnp.float32, **coordinates):
    """Of 1000 equal particles, at zero but for the coordinates that are given for 20 of them."""
    model = nvi.NumpyroModel(sites)
    flat, unravel = ravel_pytree(model.example)
    far = ravel_pytree({name: coordinates.get(name, 0.0) for name in model.example})[0]
    z = jnp.zeros((1000, flat.size), dtype).at[:20].set(far.astype(dtype))
    return rounded_at_the_border(model, unravel, z, np.full(1000, 1e-3))


def test_particles_inside_are_no_sentence():
    assert remarks() == () and remarks(share=8.0, size=-60.0, real=1e9) == ()
    assert nothing(jnp.zeros((2, 1)), np.ones(2)) == ()


@pytest.mark.parametrize(("name", "z"), [("share", 15.5), ("share", -105.0), ("size", 87.0)])
def test_sites_at_their_border_are_named(name, z):
    (sentence,) = remarks(**{name: z})
    assert sentence.startswith(f"2 % of the mass of '{name}' is at the border")
    assert "jax_enable_x64" in sentence


def test_sites_that_are_exact_there_and_double_precision_are_fine():
    assert remarks(beta=40.0) == ()
    with jax.enable_x64(True):
        assert remarks(jnp.float64, share=15.5, size=87.0) == ()
