"""Hierarchies in standard units: which sites they are, and that the density is the same one in
other coordinates.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.contrib.control_flow import scan

import nestedvi as nvi
from nestedvi.errors import ModelError, UnknownNameError

Y = np.array([2.0, -1.0, 0.5])


def groups(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("groups", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def chain(y):
    """Each step is around the one before, with heavy tails: standard units in order."""
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    now = 0.0
    for k, one in enumerate(y):
        now = numpyro.sample(f"x{k}", dist.StudentT(3.0, now, scale))
        numpyro.sample(f"y{k}", dist.Normal(now, 1.0), obs=one)


def vague(y):
    """Draws of the precision are zero in single precision as often as not."""
    tau = numpyro.sample("tau", dist.Gamma(0.01, 0.01))
    b = numpyro.sample("b", dist.Normal(0.0, 1 / jnp.sqrt(tau)).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(b, 1.0), obs=y)


def masked(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    x = numpyro.sample("x", dist.Normal(0.0, tau).expand([3]).mask(np.array([True, True, False])))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def masked_events(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    rows = dist.Normal(0.0, tau).expand([3]).mask(np.array([True, True, False]))
    numpyro.sample("y", dist.Normal(numpyro.sample("x", rows.to_event(1)), 1.0), obs=y)


def several(y):
    """A shape of samples, which NumPyro's reparameterisation would lose."""
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    x = numpyro.sample("x", dist.Normal(0.0, tau), sample_shape=(3,))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def counted_twice(y):
    """log p(x | τ) times two: not the density of ε times two and a Jacobian."""
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with handlers.scale(scale=2.0):
        x = numpyro.sample("x", dist.Normal(0.0, tau))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def scoped(y):
    with handlers.scope(prefix="part"):
        groups(y)


def directed(y):
    """A latent site without coordinates, beside one whose scale is another site."""
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    numpyro.sample("x", dist.Normal(0.0, tau))
    numpyro.sample("way", dist.ProjectedNormal(jnp.array([1.0, 0.0])))
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def walk(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))

    def step(now, one):
        now = numpyro.sample("x", dist.Normal(now, tau))
        numpyro.sample("y", dist.Normal(now, 1.0), obs=one)
        return now, None

    scan(step, 0.0, y)


def bounded(y):
    """The scale of a distribution on a half-line is none of a location-scale family."""
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    x = numpyro.sample("x", dist.LogNormal(0.0, tau))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "sites"),
    [
        (groups, ("theta",)),
        (chain, ("x0", "x1", "x2")),
        (vague, ("b",)),
        (masked, ()),
        (masked_events, ()),
        (several, ()),
        (counted_twice, ()),
        (scoped, ()),
        (walk, ()),
        (bounded, ()),
    ],
)
def test_sites_whose_scale_is_another_site(model, sites):
    density = nvi.NumpyroModel(model, (Y,))
    assert density.hierarchical == sites and density.noncentred == ()


@pytest.mark.parametrize("model", [groups, chain, vague])
def test_the_density_is_that_of_the_model_in_other_coordinates(model, x64):
    """log γ'(z') = log γ(z) + log |∂z/∂z'|, with z = `constrain` of z' where sites were moved."""
    own = nvi.NumpyroModel(model, (Y,))
    moved = own.in_standard_units()
    assert moved.noncentred == own.hierarchical
    flat, unravel = ravel_pytree(moved.example)

    def in_own(z):
        sites = unravel(z)
        known = moved.constrain(sites)
        parts = {
            called: known[called] if called in own.hierarchical else sites[name]
            for name, called in moved.called().items()
        }
        return ravel_pytree(parts)[0]

    for key in jax.random.split(jax.random.key(0), 5):
        z = jax.random.normal(key, flat.shape)
        _, unravel_own = ravel_pytree(own.example)
        expected = own.log_gamma(unravel_own(in_own(z)))
        expected += jnp.linalg.slogdet(jax.jacfwd(in_own)(z))[1]
        np.testing.assert_allclose(moved.log_gamma(unravel(z)), expected, rtol=1e-10)


def test_the_user_sees_the_model_s_own_sites():
    moved = nvi.NumpyroModel(groups, (Y,), noncentred=["theta"])
    assert set(moved.example) == {"mu", "tau", "theta_decentered"}
    assert moved.called() == {"mu": "mu", "tau": "tau", "theta_decentered": "theta"}
    sites = moved.constrain(moved.example)
    assert set(sites) == {"mu", "tau", "theta"}
    expected = sites["mu"] + sites["tau"] * moved.example["theta_decentered"]
    np.testing.assert_allclose(sites["theta"], expected, rtol=1e-6)
    draws = moved.prior_draws(jax.random.key(0), 1000)["theta_decentered"]
    assert draws.shape == (1000, 3) and abs(float(jnp.std(draws)) - 1) < 4 / (2 * 3000) ** 0.5


def test_a_run_that_fails_near_the_origin_is_no_error_of_its_own():
    with pytest.raises(ModelError, match="'way' has the support"):
        nvi.NumpyroModel(directed, (Y,))


def test_a_site_that_is_no_hierarchy_is_refused():
    with pytest.raises(UnknownNameError, match=r"hierarchical site of groups 'mu'.*theta"):
        nvi.NumpyroModel(groups, (Y,), noncentred=["mu"])


def signed(y):
    """A scale that may be negative: x has no density there."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("groups", len(y)):
        x = numpyro.sample("x", dist.Normal(0.0, b))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def test_where_a_scale_is_negative_there_is_no_density():
    model = nvi.NumpyroModel(signed, (Y,))
    moved = model.in_standard_units()
    for b in (-1.0, 1.0):
        own = {"b": jnp.array(b), "x": jnp.ones(3)}
        standard = {"b": jnp.array(b), "x_decentered": jnp.ones(3) / b}
        assert np.isfinite(model.log_gamma(own)) == np.isfinite(moved.log_gamma(standard))
    np.testing.assert_allclose(model.log_gamma(own), moved.log_gamma(standard), rtol=1e-6)
    gradient = jax.grad(moved.log_gamma)(standard)
    assert all(np.isfinite(x).all() for x in gradient.values())


def test_a_scale_that_is_rounded_to_zero_is_a_limit():
    def tiny(y):
        log_tau = numpyro.sample("log_tau", dist.Normal(0.0, 50.0))
        x = numpyro.sample("x", dist.Normal(0.0, jnp.exp(log_tau)).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(x, 1.0).to_event(1), obs=y)

    moved = nvi.NumpyroModel(tiny, (Y,)).in_standard_units()
    here = {"log_tau": jnp.array(-200.0), "x_decentered": jnp.ones(3)}
    assert jnp.exp(here["log_tau"]) == 0
    expected = dist.Normal(0.0, 50.0).log_prob(-200.0) + jnp.sum(
        dist.Normal().log_prob(here["x_decentered"]) + dist.Normal().log_prob(Y)
    )
    np.testing.assert_allclose(moved.log_gamma(here), expected, rtol=1e-6)
