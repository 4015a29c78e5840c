"""How models are called: tables, scalars and sizes as arguments, handlers that keep a density
exact, and sentences for what fails.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats
from scipy.special import betaln, gammaln

import nestedvi as nvi
from nestedvi.densities.model_calls import Arguments, explain, readings
from tests.densities.test_numpyro_model import log_evidence

pd = pytest.importorskip("pandas")

FRAME = pd.DataFrame({"x": [1.0, 2.0], "group": [0, 1]})
WORDS = pd.DataFrame({"x": [1.0, 2.0], "who": ["a", "b"]})
Y = np.array([0.3, -1.2])
SEEN = np.array([True, False])


def test_arrays_are_copied_and_others_are_left_alone():
    x = np.zeros(2)
    (arguments,) = readings((x, 3, None), {"name": "text"})
    x[:] = 7.0
    assert arguments.args[0].tolist() == [0.0, 0.0]
    assert arguments.args[1:] == (3, None) and arguments.kwargs == {"name": "text"}


def test_a_series_is_an_array_with_missing_entries_as_nan():
    arguments = next(readings((pd.Series([1.5, 2.5]),), {"n": pd.Series([1, None], dtype="Int64")}))
    assert isinstance(arguments.args[0], np.ndarray) and arguments.args[0].tolist() == [1.5, 2.5]
    np.testing.assert_array_equal(arguments.kwargs["n"], [1.0, np.nan])


def test_a_frame_is_a_matrix_or_columns_or_itself():
    matrix, columns, itself = readings((FRAME,), {})
    assert matrix.args[0].tolist() == [[1.0, 0.0], [2.0, 1.0]]
    assert columns.args[0]["group"].dtype.kind == "i" and columns.args[0]["x"].tolist() == [1, 2]
    assert itself.args[0] is FRAME
    columns, itself = readings((WORDS,), {})
    assert columns.args[0]["x"].tolist() == [1.0, 2.0] and itself.args[0] is WORDS


MIXED = Arguments((np.ones(2), 2.5, True), {"n": 3, "s": np.float64(0.5), "name": "a"})


def test_scalars_are_numbers_without_a_shape():
    assert MIXED.places(whole=True) == (1, "n", "s")
    assert MIXED.places(whole=False) == (1, "s")
    assert MIXED.at((1, "n")) == (2.5, 3)
    changed = MIXED.put((1, "n"), (7.0, 8))
    assert changed.args[1] == 7.0 and changed.kwargs["n"] == 8 and MIXED.kwargs["n"] == 3


def test_what_a_function_must_know_is_no_data():
    """A number in arithmetic may be anything; one that shapes or branches is part of the
    program.
    """
    assert MIXED.scalars(lambda a: a.args[1] * a.kwargs["n"] * a.kwargs["s"]) == (1, "n", "s")
    assert MIXED.scalars(lambda a: jnp.zeros(a.kwargs["n"]) * a.args[1]) == (1, "s")
    assert MIXED.scalars(lambda a: 1.0 if a.args[1] > 0 else jax.numpy.zeros(())) == ()


def imputed(y, seen):
    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    with numpyro.plate("rows", 2):
        numpyro.sample("y", dist.Normal(mu, 0.5), obs=y, obs_mask=seen)


def imputed_positive(y, seen):
    """The missing value has a log determinant too; it hides under the same mask."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.5))
    with numpyro.plate("rows", 2):
        numpyro.sample("y", dist.HalfNormal(scale), obs=y, obs_mask=seen)


def padded(y):
    """A ragged pair of groups: the effect that no row uses is masked."""
    with (
        numpyro.plate("effects", 2),
        numpyro.handlers.mask(mask=jnp.array([True, False])),
    ):
        effect = numpyro.sample("effect", dist.Normal(1.0, 2.0))
    numpyro.sample("y", dist.Normal(effect[0], 0.5), obs=y)


def log_one_positive():
    def density(s):
        return stats.halfnorm(scale=1.5).pdf(s) * stats.halfnorm(scale=s).pdf(0.3)

    return np.log(integrate.quad(density, 0, np.inf, epsrel=1e-12)[0])


ONE = stats.norm(1.0, np.hypot(2.0, 0.5)).logpdf(0.3)
MASKED = {
    "imputed": (imputed, (Y, SEEN), ONE),
    "imputed, NaN": (imputed, (np.where(SEEN, Y, np.nan), SEEN), ONE),
    "positive": (imputed_positive, (np.abs(Y), SEEN), log_one_positive()),
    "padded": (padded, (0.3,), ONE),
}


@pytest.mark.parametrize("case", MASKED)
def test_coordinates_that_nothing_depends_on_integrate_to_one(case, x64):
    """Normal-normal with a missing row: the evidence of what was seen."""
    model, args, expected = MASKED[case]
    density = nvi.NumpyroModel(model, args)
    assert density.improper == ()
    flat = sum(x.size for x in density.example.values())
    num = 131 if flat == 3 else 401
    assert abs(log_evidence(density, num=num, half_width=20.0) - expected) < 1e-5


def test_a_masked_prior_that_matters_is_improper():
    """`mask(False)` is how NumPyro writes a flat prior; the data depend on it."""

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).mask(False))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    density = nvi.NumpyroModel(model, (Y,))
    assert density.improper == ("mu",) and density.prior_draws(jax.random.key(0), 3) is None


def test_a_gradient_sees_missing_rows():
    density = nvi.NumpyroModel(imputed, (np.where(SEEN, Y, np.nan), SEEN))
    gradient = jax.grad(density.log_gamma)(density.example)
    assert all(np.isfinite(x).all() for x in gradient.values())


A = jnp.array([0.05, 0.02, 0.1])


def edge_beta(heads):
    p = numpyro.sample("p", dist.Beta(0.05, 0.05))
    numpyro.sample("x", dist.Binomial(3, p), obs=heads)


def edge_dirichlet():
    numpyro.sample("p", dist.Dirichlet(A))


def edge_plate():
    with numpyro.plate("two", 2):
        numpyro.sample("p", dist.Beta(jnp.array([0.05, 3.0]), 0.05))


def edge_event():
    with numpyro.plate("one", 1):
        numpyro.sample("p", dist.Beta(0.05, jnp.array([0.3, 0.05])).to_event(1))


EDGES = {
    "beta, no data against": (edge_beta, (3,), betaln(3.05, 0.05) - betaln(0.05, 0.05)),
    "dirichlet": (edge_dirichlet, (), 0.0),
    "plate": (edge_plate, (), 0.0),
    "event": (edge_event, (), 0.0),
}


@pytest.mark.parametrize("case", EDGES)
def test_mass_at_the_border_is_all_there_in_single_precision(case):
    """Beta(.05, .05) has a fifth of its mass where a float32 next to one cannot be told from
    one.
    """
    model, args, expected = EDGES[case]
    density = nvi.NumpyroModel(model, args)
    assert density.exact == ("p",)
    assert abs(log_evidence(density, num=801, half_width=800.0) - expected) < 2e-3


def test_the_density_inside_is_the_distributions_own(x64):
    density = nvi.NumpyroModel(edge_dirichlet)
    z = {"p": jnp.array([0.3, -0.8])}
    p = np.asarray(density.constrain(z)["p"])
    jacobian = jax.jacobian(lambda z: density.constrain({"p": z})["p"][:2])(z["p"])
    a = np.asarray(A, np.float64)
    expected = gammaln(a.sum()) - gammaln(a).sum() + np.sum((a - 1) * np.log(p))
    expected += np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(density.log_gamma(z), expected, rtol=1e-6)


def failure(fn, *args):
    with pytest.raises(Exception) as caught:
        fn(*args)
    return explain(caught.value)


TRACED = {
    "if": lambda z: -z if z > 0 else z,
    "float": lambda z: float(z),
    "int": lambda z: [1, 2][z.astype(int)],
    "numpy": lambda z: np.sin(z),
    "mask": lambda z: jnp.ones(3)[jnp.ones(3) > z],
}


@pytest.mark.parametrize("kind", TRACED)
def test_values_that_are_only_traced_say_how_to_write_it(kind):
    sentence = failure(jax.make_jaxpr(TRACED[kind]), jnp.zeros(()))
    assert sentence.startswith(
        "it needs the value of something that is only traced (test_model_calls.py,"
    )
    assert "jnp.where(condition, a, b)" in sentence


def test_other_errors_keep_their_first_line():
    def fails():
        raise RuntimeError("first.\nsecond")

    line = fails.__code__.co_firstlineno + 1
    assert failure(fails) == f"RuntimeError: first (test_model_calls.py, line {line})"
    assert explain(KeyError()) == "KeyError"
