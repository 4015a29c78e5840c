"""Mass at the border of a support, as single precision sees it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import nestedvi as nvi
from nestedvi.inference.border import nothing, rounded_at_the_border


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
