"""Names of sites and of their elements."""

import collections

import jax.numpy as jnp
import numpy as np

from nestedvi.inference.sites import element_names, named_sites


def test_sites_have_the_names_of_their_pytree():
    """A dict's keys, the fields and places of other pytrees, and z for a bare array."""
    Pair = collections.namedtuple("Pair", "left right")
    assert list(named_sites({"theta": jnp.zeros(2)})) == ["theta"]
    assert list(named_sites(Pair(jnp.zeros(1), [jnp.ones(2)]))) == ["left", "right.0"]
    assert list(named_sites({"a": (jnp.zeros(1), {"b": jnp.ones(1)})})) == ["a.0", "a.1.b"]
    sites = named_sites(jnp.arange(3))
    np.testing.assert_array_equal(sites.pop("z"), np.arange(3))
    assert not sites


def test_elements_are_named_in_c_order():
    assert list(element_names("theta", (2, 2))) == [
        "theta[0, 0]",
        "theta[0, 1]",
        "theta[1, 0]",
        "theta[1, 1]",
    ]
    assert list(element_names("mu", ())) == ["mu"]
