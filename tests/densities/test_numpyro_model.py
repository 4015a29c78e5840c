"""NumPyro models as densities: evidences against closed forms, by quadrature over the unconstrained
coordinates.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam
from scipy import integrate, stats
from scipy.special import betaln, gammaln

import nestedvi as nvi


def log_evidence(model, num=401, half_width=25.0):
    """log ∫ exp(log γ) over ℝⁿ by the trapezoid rule: exact to rounding where the integrand is
    smooth and gone at the border.
    """
    flat, unravel = ravel_pytree(model.example)
    axis = jnp.linspace(-half_width, half_width, num)
    points = jnp.stack(jnp.meshgrid(*[axis] * flat.size, indexing="ij"), axis=-1).reshape(
        -1, flat.size
    )
    values = jax.jit(jax.vmap(lambda z: model.log_gamma(unravel(z))))(points)
    return float(jax.nn.logsumexp(values) + flat.size * jnp.log(axis[1] - axis[0]))


Y = np.array([0.3, -1.2, 0.8, 2.1])
FLIPS = np.array([1, 0, 1, 1, 0, 1, 1])
COUNTS = np.array([3, 0, 2, 5])
THROWS = np.array([4, 1, 2])


def half_normal(y):
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.5))
    numpyro.sample("y", dist.Normal(0.0, sigma), obs=y)


def log_half_normal(y):
    def density(s):
        return np.exp(stats.halfnorm(scale=1.5).logpdf(s) + stats.norm(0, s).logpdf(y).sum())

    return np.log(integrate.quad(density, 0, np.inf, epsabs=0, epsrel=1e-12)[0])


def beta_bernoulli(flips):
    p = numpyro.sample("p", dist.Beta(2.0, 1.5))
    with numpyro.plate("flips", len(flips)):
        numpyro.sample("x", dist.Bernoulli(p), obs=flips)


def gamma_poisson(counts):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    numpyro.sample("x", dist.Poisson(rate), obs=counts)


def log_gamma_poisson(x):
    a, b, total = 2.0, 0.5, x.sum()
    return (
        a * np.log(b)
        - gammaln(a)
        + gammaln(a + total)
        - (a + total) * np.log(b + x.size)
        - gammaln(x + 1).sum()
    )


def dirichlet_multinomial(throws):
    p = numpyro.sample("p", dist.Dirichlet(jnp.array([1.5, 2.0, 2.5])))
    numpyro.sample("x", dist.Multinomial(int(throws.sum()), p), obs=throws)


def log_dirichlet_multinomial(x):
    a = np.array([1.5, 2.0, 2.5])
    log_ratio = gammaln(a.sum()) - gammaln((a + x).sum()) + (gammaln(a + x) - gammaln(a)).sum()
    return log_ratio + gammaln(x.sum() + 1) - gammaln(x + 1).sum()


def groups(y):
    """Two group means in a plate, two observations each; the last observation is masked."""
    with numpyro.plate("group", 2, dim=-1):
        mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
        with (
            numpyro.plate("row", 2, dim=-2),
            numpyro.handlers.mask(mask=jnp.array([[True, True], [True, False]])),
        ):
            numpyro.sample("y", dist.Normal(mu, 0.5), obs=y.reshape(2, 2))


def log_groups(y):
    def marginal(x):
        return stats.multivariate_normal(np.ones(x.size), 0.25 * np.eye(x.size) + 4.0).logpdf(x)

    return marginal(y.reshape(2, 2)[:, 0]) + marginal(y.reshape(2, 2)[:1, 1])


def shrinking():
    """A support that depends on another site; both priors are normalised, and a factor adds log
    3.
    """
    x = numpyro.sample("x", dist.Uniform(0.0, 2.0))
    numpyro.sample("y", dist.Uniform(0.0, x))
    numpyro.factor("three", jnp.log(3.0))


def correlation():
    numpyro.sample("L", dist.LKJCholesky(2, 2.0))


def flat_mean(y):
    mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def log_flat_mean(y):
    """∫ Π N(y_i; μ, 1) dμ: the Gaussian integral over μ leaves the scatter around the mean."""
    n = y.size
    return -0.5 * (n - 1) * np.log(2 * np.pi) - 0.5 * np.log(n) - 0.5 * np.sum((y - y.mean()) ** 2)


decentred = numpyro.handlers.reparam(groups, config={"mu": LocScaleReparam(0.0)})

CASES = {
    "half-normal": (half_normal, (Y,), log_half_normal(Y)),
    "beta-bernoulli": (
        beta_bernoulli,
        (FLIPS,),
        betaln(2 + FLIPS.sum(), 1.5 + (1 - FLIPS).sum()) - betaln(2, 1.5),
    ),
    "gamma-poisson": (gamma_poisson, (COUNTS,), log_gamma_poisson(COUNTS)),
    "dirichlet-multinomial": (dirichlet_multinomial, (THROWS,), log_dirichlet_multinomial(THROWS)),
    "plates and masks": (groups, (Y,), log_groups(Y)),
    "reparameterised": (decentred, (Y,), log_groups(Y)),
    "dynamic support, factor": (shrinking, (), np.log(3.0)),
    "correlation": (correlation, (), 0.0),
    "improper": (flat_mean, (Y,), log_flat_mean(Y)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_evidence_is_that_of_the_models_own_parameterisation(case, x64):
    model, args, expected = CASES[case]
    assert abs(log_evidence(nvi.NumpyroModel(model, args)) - expected) < 1e-6


def test_simplex_and_correlations_have_fewer_coordinates():
    assert nvi.NumpyroModel(dirichlet_multinomial, (THROWS,)).example["p"].shape == (2,)
    assert nvi.NumpyroModel(correlation).example["L"].shape == (1,)


def walk(y, num):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    numpyro.deterministic("precision", tau**-2)

    def step(z, _):
        z = numpyro.sample("z", dist.Normal(z, tau))
        numpyro.deterministic("square", z**2)
        return z, None

    last, _ = scan(step, 0.0, None, length=num)
    numpyro.sample("y", dist.Normal(last, 1.0), obs=y)


def test_constrained_and_deterministic_sites():
    """Values by hand: exp for a positive site, nothing for a real one, deterministic sites from
    both, inside a scan too.
    """
    model = nvi.NumpyroModel(walk, model_kwargs={"y": 0.5, "num": 3})
    z = {"tau": jnp.array(0.7), "z": jnp.array([0.1, -0.4, 2.0])}
    out = model.constrain(z)
    assert out.keys() == {"tau", "z", "precision", "square"}
    np.testing.assert_allclose(out["tau"], np.exp(0.7), rtol=1e-6)
    np.testing.assert_allclose(out["precision"], np.exp(-1.4), rtol=1e-5)
    np.testing.assert_allclose(out["square"], [0.01, 0.16, 4.0], rtol=1e-5)
    steps = stats.norm([0.0, 0.1, -0.4], np.exp(0.7)).logpdf([0.1, -0.4, 2.0]).sum()
    by_hand = stats.halfnorm.logpdf(np.exp(0.7)) + 0.7 + steps + stats.norm(2.0, 1.0).logpdf(0.5)
    np.testing.assert_allclose(model.log_gamma(z), by_hand, rtol=1e-5)
    # d/dτ' of −3 τ' − (Σ steps²) e^{−2τ'}/2 − e^{2τ'}/2 + τ', which samplers need.
    squares = 0.1**2 + 0.5**2 + 2.4**2
    np.testing.assert_allclose(
        jax.grad(model.log_gamma)(z)["tau"], -2 + squares * np.exp(-1.4) - np.exp(1.4), rtol=1e-4
    )


def test_prior_draws_are_the_models_own(key):
    """Constrained back, draws have the moments of Beta(2, 1.5) whatever the data say, to 4.5
    standard errors.
    """
    model = nvi.NumpyroModel(beta_bernoulli, (FLIPS,))
    draws = model.prior_draws(key, 4000)
    p = np.asarray(jax.vmap(model.constrain)(draws)["p"])
    exact = stats.beta(2.0, 1.5)
    assert abs(p.mean() - exact.mean()) < 4.5 * exact.std() / np.sqrt(4000)
    fourth = exact.expect(lambda x: (x - exact.mean()) ** 4)
    assert abs(p.var() - exact.var()) < 4.5 * np.sqrt((fourth - exact.var() ** 2) / 4000)


def test_prior_draws_at_the_border_are_replaced(key):
    """exp(60 ε) overflows in float32 for one draw in seven: its logarithm is no place to start
    from.
    """

    def model():
        numpyro.sample("x", dist.LogNormal(0.0, 60.0))

    raw = np.asarray(dist.LogNormal(0.0, 60.0).sample(key, (500,)))
    assert np.isinf(raw).any(), "the case must occur for the test to mean anything"
    draws = np.asarray(nvi.NumpyroModel(model).prior_draws(key, 500)["x"])
    assert draws.shape == (500,) and np.isfinite(draws).all() and len(set(draws.tolist())) > 300


def test_improper_priors_are_named_and_not_drawn(key):
    def model(y):
        with numpyro.plate("two", 2):
            flat = numpyro.sample("flat", dist.ImproperUniform(dist.constraints.positive, (), ()))
        numpyro.sample("proper", dist.Normal())
        numpyro.sample("y", dist.Normal(flat, 1.0), obs=y)

    built = nvi.NumpyroModel(model, (jnp.ones(2),))
    assert built.improper == ("flat",) and built.prior_draws(key, 3) is None
    assert built.example["flat"].shape == (2,)
    assert nvi.NumpyroModel(half_normal, (Y,)).improper == ()


def discrete():
    with numpyro.plate("rows", 3):
        numpyro.sample("kind", dist.Categorical(jnp.ones(2) / 2))
    numpyro.sample("on", dist.Bernoulli(0.5))
    numpyro.sample("fine", dist.Normal())


def subsampled():
    with numpyro.plate("rows", 10, subsample_size=3):
        numpyro.sample("z", dist.Normal())


def with_param():
    numpyro.sample("z", dist.Normal(numpyro.param("loc", 0.0), 1.0))


def on_sphere():
    numpyro.sample("u", dist.ProjectedNormal(jnp.ones(3)))


def point_mass():
    numpyro.sample("here", dist.Delta(1.0))


def observed(y):
    numpyro.sample("y", dist.Normal(), obs=y)


def no_sites(z):
    return -0.5 * z**2


def broken(y):
    return y["a"]


REFUSED = {
    "discrete": (
        discrete,
        (),
        r"discrete latent sites.*'kind', 'on'\. Sum them out by hand or with a mixture",
    ),
    "subsampled": (subsampled, (), r"plate 'rows' of subsampled sees 3 of its 10 rows"),
    "param": (with_param, (), r"numpyro.param at 'loc'.*numpyro.sample with a prior"),
    "sphere": (on_sphere, (), r"'u' has the support Sphere, which has no bijection"),
    "delta": (point_mass, (), r"point mass .* at 'here': use numpyro.deterministic"),
    "observed": (observed, (1.0,), r"observed has no latent sites: .*nothing to infer"),
    "no sites": (no_sites, (1.0,), r"no_sites has no sample sites.*dim=.*example="),
    "missing": (observed, (), r"observed\(y\) cannot be called .* 'y'. Give them as model_args"),
    "too many": (observed, (1.0, 2.0), r"observed\(y\) cannot be called .*too many"),
    "broken": (broken, (1.0,), r"broken failed when it was run once: TypeError: 'float' object"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_sentence(case):
    model, args, message = REFUSED[case]
    with pytest.raises(nvi.errors.ModelError, match=message) as error:
        nvi.NumpyroModel(model, args)
    assert "\n" not in str(error.value)


def test_a_model_must_be_callable():
    with pytest.raises(TypeError, match="function of its data; got int"):
        nvi.NumpyroModel(3)
