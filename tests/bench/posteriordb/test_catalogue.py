"""Every model beside its program in NumPy; on the published data also beside the reference draws:
neither runs a sampler.
"""

import os
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import log_density
from scipy.optimize import minimize

from nestedvi.bench.posteriordb.catalogue import POSTERIORS, get_posterior
from nestedvi.bench.posteriordb.data import find_folder, load_data, load_references
from nestedvi.densities.numpyro_model import NumpyroModel
from nestedvi.errors import DataError, UnknownNameError
from tests.helpers.stan_data import made_up_data
from tests.helpers.stan_programs import PROGRAMS

# One posterior of every model.
ONE_EACH = {name.split("-")[1]: name for name in POSTERIORS}
# The step size of an equation's solver is an error of ours.
ROUGH = {"lotka_volterra": 1e-3, "one_comp_mm_elim_abs": 3e-3}


@pytest.fixture(scope="module")
def folder():
    try:
        return find_folder()
    except DataError as error:
        pytest.skip(f"no data of posteriordb: {error}")


def points(model, centre, scale, seed, num=4):
    """Points of the model in its own support, around an unconstrained one."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    flat, unravel = ravel_pytree(centre)
    for _ in range(num):
        z = unravel(flat + scale * rng.normal(size=flat.size))
        latent = {name: np.asarray(model.constrain(z)[name]) for name in model.example}
        yield latent


def differences(name, data, points):
    """Log densities of model and program at several points, each less its first."""
    entry = POSTERIORS[name]
    arguments, program = entry.arguments(data), PROGRAMS[name.split("-")[1]]
    both = [
        (float(log_density(entry.model, arguments, {}, p)[0]), float(program(data, p)))
        for p in points
    ]
    ours, theirs = np.transpose(both)
    return ours - ours[0], theirs - theirs[0]


# One of each kind; the others take as long and are slow tests.
QUICK = ("garch11", "hmm_example", "gp_regr", "kidscore_interaction_z", "logmesquite_logvas", "nes")


@pytest.mark.parametrize(
    "model",
    [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in sorted(ONE_EACH)],
)
def test_a_model_is_its_program_up_to_a_constant(model, x64):
    name = ONE_EACH[model]
    data = made_up_data(POSTERIORS[name].data)
    numpyro_model = NumpyroModel(POSTERIORS[name].model, POSTERIORS[name].arguments(data))
    assert bool(numpyro_model.improper) != POSTERIORS[name].proper
    start = jax.tree.map(jnp.zeros_like, numpyro_model.example)
    ours, theirs = differences(name, data, list(points(numpyro_model, start, 0.3, name)))
    np.testing.assert_allclose(
        ours, theirs, atol=ROUGH.get(model, 1e-7), rtol=ROUGH.get(model, 1e-8)
    )


def test_all_programs_are_there():
    assert len(POSTERIORS) == 45 and set(PROGRAMS) == set(ONE_EACH)
    assert sum(entry.proper for entry in POSTERIORS.values()) == 14
    with pytest.raises(UnknownNameError, match="arma-arma11"):
        get_posterior("arma-arma1")


def stan_values(sites):
    """Values by Stan's names."""
    return {
        name if np.ndim(x) == 0 else f"{name}[{i + 1}]": value
        for name, x in sites.items()
        for i, value in enumerate(np.ravel(x))
    }


def posterior_mode(model):
    """The mode in unconstrained coordinates as values of the sites, and the sites' standard
    deviations by Laplace's approximation there.
    """
    flat, unravel = ravel_pytree(model.example)

    def energy(z):
        return -model.log_gamma(unravel(z))

    def constrained(z):
        return jnp.concatenate([jnp.ravel(x) for x in model.constrain(unravel(z)).values()])

    value, hessian = jax.jit(jax.value_and_grad(energy)), jax.jit(jax.hessian(energy))

    def for_scipy(z):
        return [np.asarray(x, dtype=float) for x in value(z)]

    starts = [flat + 0.5 * jax.random.normal(jax.random.key(i), flat.shape) for i in range(4)]
    climbs = [minimize(for_scipy, start, jac=True, method="BFGS") for start in starts]
    best = min((climb for climb in climbs if np.isfinite(climb.fun)), key=lambda climb: climb.fun)
    z = best.x
    # Newton's steps finish: BFGS stops early where scales differ by 10⁶.
    for _ in range(20):
        step = np.linalg.solve(hessian(z), value(z)[1])
        z = z - step if value(z - step)[0] <= value(z)[0] else z
    jacobian, covariance = jax.jacfwd(constrained)(z), np.linalg.inv(hessian(z))
    sds = np.sqrt(np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian))
    values = stan_values(model.constrain(unravel(jnp.asarray(z))))
    return values, dict(zip(values, sds, strict=True))


# Skewed posteriors, whose mode says less of their mean: the factor that standard deviations may
# differ by, and how many of them the mode may be off.
SKEWED = {
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": (15.0, 2.0),
    "garch-garch11": (1.6, 1.0),
    "gp_pois_regr-gp_regr": (1.6, 1.0),
    **{name: (1.3, 1.0) for name in POSTERIORS if name.startswith("mesquite")},
}
# Scales of many latent values: their joint mode overfits and is far from all mass.
WITHOUT_MODE = ("eight_schools-eight_schools_noncentered", "gp_pois_regr-gp_pois_regr")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in POSTERIORS if name not in WITHOUT_MODE])
def test_modes_and_their_curvature_agree_with_the_reference(name, x64, folder):
    entry, reference = POSTERIORS[name], load_references(folder)[name]
    data = load_data(entry.data, folder)
    model = NumpyroModel(entry.model, entry.arguments(data))
    at, sds = posterior_mode(model)
    factor, far = SKEWED.get(name, (1.3, 0.8))
    assert reference.moments.keys() <= at.keys()
    for parameter, moments in reference.moments.items():
        assert abs(at[parameter] - moments.mean) < far * moments.sd, parameter
        assert 1 / factor < sds[parameter] / moments.sd < factor, parameter


@pytest.mark.slow
@pytest.mark.parametrize("name", POSTERIORS)
def test_models_on_the_published_data_are_their_programs(name, x64, folder):
    """Around the reference means, by points whose log densities differ by some tens."""
    entry, reference = POSTERIORS[name], load_references(folder)[name]
    data = load_data(entry.data, folder)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    some = []
    for _ in range(4):
        flat = {p: m.mean + rng.uniform(-1, 1) * m.sd for p, m in reference.moments.items()}
        flat = {
            p: np.clip(x, reference.moments[p].low, reference.moments[p].high)
            for p, x in flat.items()
        }
        some.append(_sites(flat, entry, data, rng))
    ours, theirs = differences(name, data, some)
    model = name.split("-")[1]
    rough = ROUGH.get(model, 0.0)
    np.testing.assert_allclose(ours, theirs, atol=1e-5 + rough, rtol=1e-7 + rough)


def _sites(values, entry, data, rng):
    """A dict of sites from values by Stan's names; a simplex sums to one, and latent sites that the
    reference lacks are drawn.
    """
    model = NumpyroModel(entry.model, entry.arguments(data))
    sites = {}
    for name, like in model.constrain(model.example).items():
        if name not in model.example:
            continue
        if np.ndim(like) == 0:
            sites[name] = values[name]
        elif f"{name}[1]" in values:
            sites[name] = np.array([values[f"{name}[{i + 1}]"] for i in range(np.size(like))])
        else:
            sites[name] = rng.normal(size=np.shape(like))
        if name in ("theta1", "theta2"):
            sites[name] = sites[name] / sites[name].sum()
    return sites


def test_the_data_folder_is_used_if_there_is_one():
    """Says in the log which of the slow tests above can run."""
    if not os.environ.get("NESTEDVI_DATA"):
        pytest.skip("NESTEDVI_DATA is not set")
    assert len(load_references(find_folder())) == 45
