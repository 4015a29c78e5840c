"""The libraries that are compared: each answers a problem with the settings that its documentation
recommends, in its own form. A library is imported when it is asked.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evidence_problems import Problem

__all__ = ["CONTENDERS", "Result", "answer"]


class Result(NamedTuple):
    """log Z with the error that the library states, its evaluations of the likelihood (a gradient
    counts as one), and what it warned of. A library that gives no log Z has None.
    """

    log_Z: float | None
    stderr: float | None
    evaluations: float | None
    warned: tuple[str, ...] = ()


def _points(problem: Problem) -> Callable[[np.ndarray], np.ndarray]:
    """The likelihood of many points, compiled for sizes that are powers of two."""
    compiled = jax.jit(jax.vmap(problem.log_likelihood))

    def values(x: np.ndarray) -> np.ndarray:
        x = np.atleast_2d(x)
        size = max(8, 1 << (len(x) - 1).bit_length())
        padded = np.concatenate([x, np.repeat(x[:1], size - len(x), axis=0)])
        found = np.asarray(compiled(padded), dtype=float)[: len(x)]
        # Nested samplers compare likelihoods: NaN must not win.
        return np.where(np.isnan(found), -1e300, np.maximum(found, -1e300))

    return values


def _point(problem: Problem) -> Callable[[np.ndarray], float]:
    compiled = jax.jit(problem.log_likelihood)

    def value(x: np.ndarray) -> float:
        found = float(compiled(x))
        return -1e300 if np.isnan(found) else max(found, -1e300)

    return value


def nestedvi_auto(problem: Problem, seed: int) -> Result:
    from nestedvi.inference.sample import sample

    posterior = sample(jax.random.key(seed), problem.model)
    cost, num = posterior.cost, len(posterior.log_weights)
    evaluations = num * sum(cost) if cost else None
    return Result(posterior.log_Z, posterior.log_Z_stderr, evaluations, posterior.diagnosis)


def dynesty(problem: Problem, seed: int) -> Result:
    """The static sampler with its defaults: 500 live points; the way of sampling by dimension."""
    from dynesty import NestedSampler

    rng = np.random.default_rng(seed)
    sampler = NestedSampler(_point(problem), problem.from_cube, problem.dim, rstate=rng)
    sampler.run_nested(print_progress=False)
    found = sampler.results
    return Result(float(found.logz[-1]), float(found.logzerr[-1]), float(np.sum(found.ncall)))


def nautilus(problem: Problem, seed: int) -> Result:
    """2000 live points and an effective sample size of 10 000, as by default. Points of the
    exploration are discarded, which its documentation recommends where log Z must be unbiased.
    """
    from nautilus import Sampler

    sampler = Sampler(
        problem.from_cube,
        _points(problem),
        n_dim=problem.dim,
        vectorized=True,
        pass_dict=False,
        seed=seed,
    )
    sampler.run(verbose=False, discard_exploration=True)
    # It states no error; that of so many effective draws is what its documentation gives.
    stderr = float(sampler.n_eff) ** -0.5
    return Result(float(sampler.log_z), stderr, float(sampler.n_like))


def pocomc(problem: Problem, seed: int) -> Result:
    import pocomc as pc

    priors = [block.scipy() for block in problem.blocks for _ in range(block.size)]
    sampler = pc.Sampler(
        prior=pc.Prior(priors), likelihood=_points(problem), vectorize=True, random_state=seed
    )
    sampler.run(progress=False)
    log_Z, stderr = sampler.evidence()
    calls = float(np.max(sampler.results["calls"]))
    return Result(float(log_Z), None if stderr is None else float(stderr), calls)


def ultranest(problem: Problem, seed: int) -> Result:
    """The reactive sampler; above ten dimensions with slices, as its documentation recommends."""
    from ultranest import ReactiveNestedSampler
    from ultranest import stepsampler as steps

    np.random.seed(seed)
    names = [f"{block.name}{i}" for block in problem.blocks for i in range(block.size)]
    sampler = ReactiveNestedSampler(names, _points(problem), problem.from_cube, vectorized=True)
    # It writes a line an iteration otherwise.
    logging.getLogger("ultranest").setLevel(logging.WARNING)
    if problem.dim > 10:
        sampler.stepsampler = steps.SliceSampler(
            nsteps=2 * problem.dim, generate_direction=steps.generate_mixture_random_direction
        )
    found = sampler.run(show_status=False, viz_callback=False)
    return Result(float(found["logz"]), float(found["logzerr"]), float(found["ncall"]))


def jaxns(problem: Problem, seed: int) -> Result:
    from jaxns.core import NestedSampler
    from jaxns.model import Model
    from jaxns.priors import Prior
    from tensorflow_probability.substrates import jax as tfp

    families = {
        "normal": tfp.distributions.Normal,
        "half-cauchy": lambda scale: tfp.distributions.HalfCauchy(0.0, scale),
        "uniform": tfp.distributions.Uniform,
        "gamma": tfp.distributions.Gamma,
    }

    def prior_model():
        parts = []
        for block in problem.blocks:
            args = (jnp.full(block.size, value) for value in block.args)
            parts.append(Prior(families[block.family](*args), name=block.name).realise())
        return problem.log_likelihood(jnp.concatenate(parts))

    sampler = NestedSampler(model=Model(prior_model=prior_model), collect_phantom_samples=True)
    state = sampler.run(key=jax.random.PRNGKey(seed))
    found = state.to_result().trim()
    evaluations = float(getattr(found, "total_num_likelihood_evaluations", np.nan))
    return Result(float(found.log_Z_mean), float(found.log_Z_uncert), evaluations)


def pymc_smc(problem: Problem, seed: int) -> Result:
    """`sample_smc` with its defaults: 2000 draws, four chains; the error is that between them."""
    import pymc as pm
    import pytensor.tensor as pt
    from pytensor.graph import Apply, Op

    value, calls = _point(problem), [0]

    class LogLikelihood(Op):
        def make_node(self, x):
            return Apply(self, [pt.as_tensor_variable(x)], [pt.dscalar()])

        def perform(self, node, inputs, outputs):
            calls[0] += 1
            outputs[0][0] = np.asarray(value(inputs[0]))

    families = {
        "normal": lambda name, size, a, b: pm.Normal(name, a, b, shape=size),
        "half-cauchy": lambda name, size, a: pm.HalfCauchy(name, a, shape=size),
        "uniform": lambda name, size, a, b: pm.Uniform(name, a, b, shape=size),
        "gamma": lambda name, size, a, b: pm.Gamma(name, a, b, shape=size),
    }
    with pm.Model():
        parts = [families[b.family](b.name, b.size, *b.args) for b in problem.blocks]
        pm.Potential("likelihood", LogLikelihood()(pt.concatenate(parts)))
        trace = pm.sample_smc(cores=1, progressbar=False, random_seed=seed)
    chains = [
        np.asarray(chain, dtype=float)
        for chain in trace.sample_stats["log_marginal_likelihood"].values
    ]
    each = np.array([chain[np.isfinite(chain)][-1] for chain in chains])
    stderr = float(each.std(ddof=1) / np.sqrt(len(each)))
    return Result(float(each.mean()), stderr, float(calls[0]))


def numpyro_nuts(problem: Problem, seed: int) -> Result:
    """The posterior alone: four chains of 1000 draws after as many of warm-up."""
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(problem.model)
    mcmc = MCMC(
        kernel,
        num_warmup=1000,
        num_samples=1000,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), extra_fields=("num_steps", "diverging"))
    rows = summary(mcmc.get_samples(group_by_chain=True)).values()
    rhat = max(float(np.max(row["r_hat"])) for row in rows)
    diverging = int(mcmc.get_extra_fields()["diverging"].sum())
    warned = [f"R̂ up to {rhat:.2f}"] if rhat > 1.01 else []
    warned += [f"{diverging} draws diverged"] if diverging else []
    # Warm-up's steps are not recorded.
    steps = float(mcmc.get_extra_fields()["num_steps"].sum())
    return Result(None, None, steps, tuple(warned))


CONTENDERS: dict[str, Callable[[Problem, int], Result]] = {
    "auto": nestedvi_auto,
    "dynesty": dynesty,
    "nautilus": nautilus,
    "pocomc": pocomc,
    "ultranest": ultranest,
    "jaxns": jaxns,
    "pymc-smc": pymc_smc,
    "numpyro-nuts": numpyro_nuts,
}
# Our own runs and NUTS in the precision that their users get; the others compute in double.
_SINGLE = ("auto", "numpyro-nuts")


def answer(contender: str, problem: Problem, seed: int) -> Result:
    """One answer, with what was warned of or logged as a warning meanwhile."""
    jax.config.update("jax_enable_x64", contender not in _SINGLE)
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        result = CONTENDERS[contender](problem, seed)
    logging.getLogger().removeHandler(handler)
    if contender == "auto":
        return result
    said = dict.fromkeys(str(w.message).splitlines()[0] for w in caught)
    said |= dict.fromkeys(line for line in log.getvalue().splitlines() if line.strip())
    return result._replace(warned=(*result.warned, *said))
