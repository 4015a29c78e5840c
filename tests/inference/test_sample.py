"""One call from a log density to particles and log Z."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import betaln, gammaln

import nestedvi as nvi
from nestedvi.densities.base import Density
from nestedvi.inference.answer import Answer, Request
from nestedvi.inference.sample import ANSWERS, _missing_values
from nestedvi.smc.population import _move
from tests.helpers.posteriors import FLIPS, coin

LOG_Z = 5.0


def test_particles_may_be_pytrees_and_methods_may_learn_nothing():
    """exp(5) N(a; 2, 0.5²) N(b; −1, 1)²: a scalar and a vector, with an SMC sampler that is not
    trained.
    """
    example = {"a": 0, "b": np.zeros(2)}

    def log_density(z):
        assert z["a"].shape == () and z["b"].shape == (2,)
        log_a = -0.5 * ((z["a"] - 2) / 0.5) ** 2 - np.log(0.5)
        return LOG_Z + log_a + jnp.sum(-0.5 * (z["b"] + 1) ** 2) - 1.5 * np.log(2 * np.pi)

    posterior = nvi.sample(
        jax.random.key(2), log_density, example=example, method="smc", num_particles=1001
    )
    assert posterior.samples["a"].shape == (1001,) and posterior.samples["b"].shape == (1001, 2)
    assert abs(posterior.log_Z - LOG_Z) < 4.5 * posterior.log_Z_stderr < 0.5
    w = nvi.particles.normalise(posterior.log_weights)
    assert abs(float(w @ posterior.samples["a"]) - 2) < 5 * 0.5 / np.sqrt(posterior.ess)
    draws = posterior.resample(jax.random.key(3), 7)
    assert draws["a"].shape == (7,) and draws["b"].shape == (7, 2)


def test_a_numpyro_model_gives_its_evidence_and_its_sites():
    """Beta(2, 1.5) and ten flips: evidence and posterior mean in closed form, in the site's own
    support.
    """
    posterior = nvi.sample(
        jax.random.key(1), coin, model_args=(FLIPS,), method="smc", num_particles=1000
    )
    ones, zeros = FLIPS.sum(), (1 - FLIPS).sum()
    exact = betaln(2 + ones, 1.5 + zeros) - betaln(2, 1.5)
    assert abs(posterior.log_Z - exact) < 4.5 * posterior.log_Z_stderr < 0.3
    assert posterior.samples.keys() == {"p", "odds"} and posterior.diagnosis == ()
    mean, total = (2 + ones) / (3.5 + FLIPS.size), 3.5 + FLIPS.size
    w = np.asarray(nvi.particles.normalise(posterior.log_weights))
    assert abs(w @ posterior.samples["p"] - mean) < 4.5 * np.sqrt(
        mean * (1 - mean) / (total + 1) / posterior.ess
    )
    p = np.asarray(posterior.samples["p"])
    np.testing.assert_allclose(posterior.samples["odds"], p / (1 - p), rtol=1e-4)


@pytest.mark.slow
def test_a_prior_far_away_is_where_the_search_starts():
    """θ ~ N(10⁶, 100²), one observation: without the prior's draws the search would begin ten
    thousand of its widths away.
    """

    def model(y):
        theta = numpyro.sample("theta", dist.Normal(1e6, 100.0))
        numpyro.sample("y", dist.Normal(theta, 100.0), obs=y)

    posterior = nvi.sample(
        jax.random.key(2), model, model_args=(1e6 + 50.0,), method="smc", num_particles=1000
    )
    exact = dist.Normal(1e6, 100 * np.sqrt(2)).log_prob(1e6 + 50.0)
    assert abs(posterior.log_Z - float(exact)) < max(4.5 * posterior.log_Z_stderr, 0.01)


def test_an_improper_prior_is_reported():
    def model(y):
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    y = np.array([0.5, 1.5], dtype=np.float32)
    with pytest.warns(
        nvi.NestedviWarning, match="prior of 'mu' is improper: log Z has an arbitrary constant"
    ):
        posterior = nvi.sample(
            jax.random.key(3), model, model_args=(y,), method="smc", num_particles=1000
        )
    # ∫ N(y₁; μ, 1) N(y₂; μ, 1) dμ = N(y₁ − y₂; 0, 2).
    exact = -0.5 * np.log(2 * np.pi * 2) - 0.25
    assert abs(posterior.log_Z - exact) < 4.5 * posterior.log_Z_stderr


def test_a_posterior_that_runs_away_is_refused_by_name():
    """A flat prior on a slope that nothing observes."""

    def model(y):
        b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.real, (2,), ()))
        numpyro.sample("y", dist.Normal(b[0], 1.0), obs=y)

    with pytest.raises(
        nvi.errors.DensityError,
        match=r"log Z runs away: particles keep spreading along b\[1\].*proper prior",
    ):
        nvi.sample(jax.random.key(4), model, model_args=(0.3,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"method": "smc", "num_levels": 4},
            "'smc' takes no num_levels: it finds its temperatures",
        ),
        ({"method": "smc", "num_steps": 4}, "'smc' takes no num_steps"),
        ({"num_steps": 4}, "'auto' takes no num_steps"),
        ({"method": "ais", "num_steps": 4}, "'ais' takes no num_steps: it learns nothing"),
        ({"num_particles": 5}, "num_particles is 20 or more; got 5"),
        ({"num_levels": 0}, "num_levels is 2 or more; got 0. The first density"),
        ({"method": "nvi", "num_steps": 0}, "num_steps is 1 or more; got 0"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        nvi.sample(jax.random.key(0), lambda z: -jnp.sum(z**2), dim=3, **options)


def test_a_model_is_compiled_once():
    """Also for other data of that shape, and for an array that was changed in place: the answers
    are those of the data.
    """
    y = np.array([0.1, 0.4])

    def model(y):
        numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Normal(0.0, 1.0)), 1.0), obs=y)

    def answer():
        return nvi.sample(
            jax.random.key(0), model, model_args=(y,), method="smc", num_particles=400
        )

    def exact():
        return stats.multivariate_normal(np.zeros(2), np.eye(2) + 1).logpdf(y)

    first, compiled = answer(), _move._cached._cache_size()
    assert abs(first.log_Z - exact()) < 5 * first.log_Z_stderr
    y[:] = 2.0, -0.5
    other = answer()
    assert (
        abs(other.log_Z - exact()) < 5 * other.log_Z_stderr and abs(other.log_Z - first.log_Z) > 0.5
    )
    assert _move._cached._cache_size() == compiled


def test_a_density_that_grows_without_bound_is_refused():
    """Its particles end on one point far away, where they differ by their rounding alone."""
    with pytest.raises(
        nvi.errors.DensityError, match=r"all particles on one point.*grows without bound"
    ):
        nvi.sample(
            jax.random.key(0), lambda z: 0.1 * jnp.sum(z**2), dim=2, method="smc", num_particles=100
        )


def test_progress_ends_when_a_search_fails():
    class Reporter:
        stopped = 0

        def start(self, total, done): ...

        def update(self, done, **measures): ...

        def stop(self):
            self.stopped += 1

    reporter = Reporter()
    with pytest.raises(nvi.errors.DensityError):
        nvi.sample(
            jax.random.key(0),
            lambda z: -jnp.inf * jnp.sum(z**2),
            dim=1,
            method="smc",
            progress=reporter,
        )
    assert reporter.stopped == 1


def test_other_ways_of_answering_stand_beside_the_rows(monkeypatch):
    """A function under a name of its own gets the density on vectors, the prior's draws and the
    budget; its answer is used.
    """
    seen = {}

    def mine(key, request):
        value = request.density.log_gamma(jnp.zeros(request.dim))
        seen.update(vars(request), prior_shape=request.prior(key, 7).shape, value=value)
        return Answer(
            jnp.zeros((30, request.dim)),
            jnp.zeros(30),
            1.25,
            0.1,
            diagnosis=("It is made up.",),
            exact=True,
        )

    monkeypatch.setitem(ANSWERS, "smc", mine)
    with pytest.warns(nvi.NestedviWarning, match=r"^It is made up\.$"):
        posterior = nvi.sample(
            jax.random.key(0),
            coin,
            model_args=(FLIPS,),
            method="smc",
            num_particles=30,
            num_steps=5,
        )
    assert (posterior.log_Z, posterior.log_Z_stderr, posterior.diagnosis) == (
        1.25,
        0.1,
        ("It is made up.",),
    )
    np.testing.assert_allclose(posterior.samples["p"], 0.5)
    assert (seen["dim"], seen["prior_shape"], seen["num_particles"], seen["num_steps"]) == (
        1,
        (7, 1),
        30,
        5,
    )
    assert seen["method"] == "smc" and np.isfinite(seen["value"])
    with pytest.raises(nvi.errors.UnknownNameError, match="Did you mean 'smc'"):
        nvi.sample(jax.random.key(0), coin, model_args=(FLIPS,), method="smk")


def test_nan_among_the_particles_is_reported():
    z = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    answer = Answer(z, np.zeros(500), 0.0, 0.1)
    holes = Density(lambda z: jnp.where(z[0] > 2.0, jnp.nan, -0.5 * jnp.sum(z**2)))
    (sentence,) = _missing_values(answer, Request(holes, 2))
    assert "NaN at" in sentence and "no mass" in sentence
    whole = Density(lambda z: -0.5 * jnp.sum(z**2))
    assert _missing_values(answer, Request(whole, 2)) == ()


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
        - gammaln(a)
        + gammaln(a + total)
        - (a + total) * np.log(b + len(y))
        - gammaln(y + 1.0).sum()
    )
    posterior = nvi.sample(jax.random.key(0), model, model_args=(y,), method=method)
    assert abs(posterior.log_Z - truth) < within
