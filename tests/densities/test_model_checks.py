"""Data that belong to another model are found before anything is compiled; mass at the border of a
support as single precision sees it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import nestedvi as nvi
from nestedvi.densities.model_checks import rounded_at_the_border

X = np.linspace(-1.0, 1.0, 20)
Y = 0.5 * X


def line(x, y=None, scale=1.0):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * x, scale), obs=y)


def with_length(x, y=None):
    """It asks its data for their length, which a stand-in does not have."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(x) if y is None else len(y)):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def other_name(x, outcome=None, prior_scale=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0 if prior_scale is None else prior_scale))
    numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=outcome)


def classes(y):
    p = numpyro.sample("p", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Bernoulli(logits=p), obs=y)


HOLES = np.where(X > 0.8, np.nan, Y)
REFUSED = {
    "column": (line, (X, Y[:, None]), r"'y' of line have shape \(20, 1\).*stretched to \(20, 20\)"),
    "row of a matrix": (line, (X[:, None], Y), r"'y' of line have shape \(20,\).*has \(20, 1\)"),
    "do not fit": (line, (X, Y[:7]), r"shape \(7,\), its distribution has \(20,\)"),
    "NaN": (line, (X, HOLES), r"'y' of line \(shape \(20,\)\) hold 2 NaN.* first at \[18\]"),
    "infinite": (line, (X, np.where(X > 0.9, np.inf, Y)), r"hold 1 NaN or infinite"),
    "NaN in an argument": (line, (HOLES, Y), r"hold NaN \(2 in argument 1\).*density at 'y'"),
    "empty": (line, (X[:0], Y[:0]), r"data of line are empty: 'y' of shape \(0,\)"),
    "left out": (line, (X,), r"'y' of line was not given.*site 'y' \(shape \(20,\)\) has no data"),
    "left out, by length": (with_length, (X,), r"'y' of with_length was not given"),
    "left out, other name": (other_name, (X,), r"'outcome' of other_name was .* so the site 'y'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_data_of_another_model_are_refused_in_one_sentence(case):
    model, args, message = REFUSED[case]
    with pytest.raises(nvi.errors.ModelError, match=message) as error:
        nvi.NumpyroModel(model, args)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (line, (X, Y)),
        (line, (X, 0.0)),  # one number for all rows is meant
        (line, (0.5, Y)),  # as is one mean for all observations
        (line, (X[:, None], Y[:, None])),
        (line, (X, None)),  # None that was given is meant
        (other_name, (X, Y)),  # an argument that is no data
    ],
)
def test_what_may_be_meant_passes(model, args):
    assert nvi.NumpyroModel(model, args).remarks == ()


def test_classes_that_a_distribution_does_not_have_are_remarked_on():
    (sentence,) = nvi.NumpyroModel(classes, (np.array([0, 1, 2, 2]),)).remarks
    assert sentence.startswith("2 of the observations at 'y' (shape (4,)) are outside")
    assert nvi.NumpyroModel(classes, (np.array([0, 1, 1]),)).remarks == ()


def test_what_a_mask_hides_is_not_looked_at():
    def model(y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.handlers.mask(mask=jnp.isfinite(y)):
            numpyro.sample("y", dist.Normal(slope * X, 1.0), obs=y)

    assert nvi.NumpyroModel(model, (HOLES,)).remarks == ()


def bounded_sites():
    numpyro.sample("share", dist.Uniform(0.0, 1.0))
    numpyro.sample("beta", dist.Beta(0.05, 0.05))
    numpyro.sample("size", dist.HalfNormal(1.0))
    numpyro.sample("real", dist.Normal(0.0, 1.0))


def remarks(dtype=jnp.float32, **coordinates):
    """Of 1000 equal particles, at zero but for the coordinates that are given for 20 of them."""
    model = nvi.NumpyroModel(bounded_sites)
    flat, unravel = ravel_pytree(model.example)
    far = ravel_pytree({name: coordinates.get(name, 0.0) for name in model.example})[0]
    z = jnp.zeros((1000, flat.size), dtype).at[:20].set(far.astype(dtype))
    return rounded_at_the_border(model.bijections_that_round(), unravel, z, np.full(1000, 1e-3))


def test_particles_inside_are_no_sentence():
    assert remarks() == () and remarks(share=8.0, size=-60.0, real=1e9) == ()


@pytest.mark.parametrize(("name", "z"), [("share", 15.5), ("share", -105.0), ("size", 87.0)])
def test_sites_at_their_border_are_named(name, z):
    (sentence,) = remarks(**{name: z})
    assert sentence.startswith(f"2 % of the mass of '{name}' is at the border")
    assert "jax_enable_x64" in sentence


def test_sites_that_are_exact_there_and_double_precision_are_fine():
    assert remarks(beta=40.0) == ()
    with jax.enable_x64(True):
        assert remarks(jnp.float64, share=15.5, size=87.0) == ()


def test_a_factor_is_no_site_without_data():
    """On its own, inside of a plate, and one a row."""

    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        numpyro.factor("alone", -m)
        with numpyro.plate("rows", len(y)):
            numpyro.factor("in a plate", 0.0 * m)
            numpyro.factor("a row", jnp.zeros(len(y)) * m)
            numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    assert nvi.NumpyroModel(model, (Y,)).remarks == ()
