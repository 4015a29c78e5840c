"""A user's model as a density on vectors, in both precisions, the way back, names of sites, and
what is refused; mass at the border of a support as single precision sees it.
"""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.inference.problem import (
    element_names,
    in_double,
    make_problem,
    named_sites,
)
from nestedvi.precision import double_precision
from tests.helpers.posteriors import FLIPS, coin


def bell(z):
    """exp(−|z − 1|²/2) of three coordinates."""
    return -0.5 * jnp.sum((z - jnp.ones(3)) ** 2)


def test_a_pytree_becomes_a_vector_and_back(x64):
    """Coordinates have names, the density is the function's, and the way back is the pytree."""
    example = {"a": 0, "b": np.zeros(2)}

    def log_density(z):
        return -(z["a"] ** 2) - jnp.sum(z["b"] * jnp.array([1.0, 10.0]))

    problem = make_problem(log_density, example=example)
    assert problem.dim == 3 and problem.names == ("a", "b[0]", "b[1]")
    z = jnp.array([2.0, 3.0, 5.0])
    np.testing.assert_allclose(problem.density.log_gamma(z), -4.0 - 53.0)
    back = problem.finish(z)
    assert float(back["a"]) == 2 and back["b"].tolist() == [3, 5]
    assert problem.prior is None and problem.remarks == ()


def test_a_distribution_knows_its_shape(x64):
    problem = make_problem(dist.Normal(jnp.array([0.0, 3.0]), 2.0))
    assert problem.dim == 2
    expected = stats.norm([0.0, 3.0], 2.0).logpdf([1.0, 1.0]).sum()
    np.testing.assert_allclose(problem.density.log_gamma(jnp.ones(2)), expected, rtol=1e-12)


def test_a_model_is_a_density_on_unconstrained_coordinates(x64):
    """p = sigmoid(z): the joint density times dp/dz, and deterministic sites on the way back."""
    problem = make_problem(coin, model_args=(FLIPS,))
    p = 1 / (1 + np.exp(-0.4))
    expected = stats.beta(2.0, 1.5).logpdf(p) + stats.bernoulli(p).logpmf(FLIPS).sum()
    value = problem.density.log_gamma(jnp.array([0.4]))
    np.testing.assert_allclose(value, expected + np.log(p * (1 - p)), rtol=1e-10)
    sites = problem.finish(jnp.array([0.4]))
    np.testing.assert_allclose([sites["p"], sites["odds"]], [p, p / (1 - p)], rtol=1e-10)
    assert problem.prior is not None and problem.remarks == ()


def test_an_improper_prior_is_remarked_on_and_not_drawn():
    def model():
        numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))

    problem = make_problem(model)
    assert problem.prior is None and "prior of 'mu' is improper" in problem.remarks[0]


def test_scalars_of_a_model_are_data_and_sizes_are_not(x64):
    """Another value of a hyperparameter is another leaf of the same program; the density follows
    it.
    """
    one, two = (
        make_problem(coin, model_args=(FLIPS,), model_kwargs={"a": a}) for a in (2.0, np.float64(3))
    )
    assert jax.tree.structure(one.density) == jax.tree.structure(two.density)
    assert jax.tree.structure(one.finish) == jax.tree.structure(two.finish)
    p = 1 / (1 + np.exp(-0.4))
    for problem, a in ((one, 2.0), (two, 3.0)):
        expected = stats.beta(a, 1.5).logpdf(p) + stats.bernoulli(p).logpmf(FLIPS).sum()
        value = problem.density.log_gamma(jnp.array([0.4]))
        np.testing.assert_allclose(value, expected + np.log(p * (1 - p)), rtol=1e-10)

    def sized(num, y):
        z = numpyro.sample("z", dist.Normal(jnp.zeros(num), 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    assert make_problem(sized, model_args=(3, np.zeros(3))).dim == 3


REFUSED = {
    "neither": (bell, {}, r"dim=.*example=.*only one"),
    "both": (bell, {"dim": 2, "example": np.zeros(2)}, r"dim=.*example=.*only one"),
    "density without shape": (nvi.Density(bell), {}, r"dim=.*example=.*only one"),
    "dim of zero": (
        bell,
        {"dim": 0},
        r"dim is 1 or more; got 0. A particle has",
    ),
    "empty example": (bell, {"example": {}}, r"at least one coordinate; the example has none"),
    "example of words": (
        bell,
        {"example": "three"},
        r"example of a particle must be a pytree of numbers",
    ),
    "other shape": (
        bell,
        {"example": np.zeros(4)},
        r"cannot score a particle shaped as example, of shapes \(4,\).*agree",
    ),
    "other keys": (
        lambda z: z["b"],
        {"example": {"a": 0.0}},
        r"shapes \{'a': \(\)\} says \(KeyError: 'b' \(",
    ),
    "not a scalar": (
        lambda z: z,
        {"dim": 2},
        r"dim=2 says \(ValueError: A log density must return a scalar",
    ),
    "integers": (lambda z: 3, {"dim": 2}, r"returns one real number; got int"),
    "data for a density": (bell, {"dim": 3, "model_args": (1,)}, r"bind its data with a lambda"),
    "data twice": (
        nvi.NumpyroModel(coin, (FLIPS,)),
        {"model_args": (1,)},
        r"holds its data already",
    ),
    "missing data": (coin, {}, r"coin\(flips, a=2.0\) cannot be called .* 'flips'"),
    "wrong keyword": (
        coin,
        {"model_args": (FLIPS,), "model_kwargs": {"b": 1}},
        r"unexpected keyword argument 'b'",
    ),
    "failing model": (
        coin,
        {"model_args": (3,)},
        r"coin failed when it was run once: TypeError: .*len",
    ),
    "no latent sites": (
        lambda: numpyro.sample("x", dist.Normal(), obs=1.0),
        {},
        r"has no latent sites",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_sampled_is_refused_in_one_sentence(case):
    thing, options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as error:
        make_problem(thing, **options)
    assert "\n" not in str(error.value)


def test_what_is_no_model_at_all_is_a_type_error():
    with pytest.raises(TypeError, match="got str"):
        make_problem("funnel")


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


def shifted(z):
    """A constant that single precision rounds to a multiple of 64."""
    return jnp.sum(-0.5 * z**2) + 1e9 + 10.0


def test_the_density_is_traced_in_double_precision():
    exact = in_double(Density(shifted), jnp.zeros(2))
    with double_precision():
        assert float(exact.log_gamma(jnp.ones(2))) == 1e9 + 9.0
    assert jnp.result_type(float) == jnp.float32


def test_a_density_that_insists_on_single_precision_has_none():
    assert in_double(Density(lambda z: jnp.sum(z).astype(jnp.float32)), jnp.zeros(2)) is None


def test_in_double_precision_there_is_nothing_to_do(x64):
    assert in_double(Density(shifted), jnp.zeros(2)) is None
