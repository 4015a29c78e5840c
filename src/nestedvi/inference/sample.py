"""From a NumPyro model or a log density to weighted particles and the evidence in one call. It
joins `problem`, a way of answering and `posterior`, and refuses to hold any algorithm itself.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree

from nestedvi._types import Key
from nestedvi.arguments import check_folder, check_key, check_whole
from nestedvi.densities.base import log_values
from nestedvi.devices import Devices, as_mesh
from nestedvi.distributed import num_processes
from nestedvi.errors import DensityError, NestedviWarning, UnknownNameError
from nestedvi.host import one_thread
from nestedvi.inference.answer import (
    Answer,
    AnswerFunction,
    Request,
    RoundingError,
    make_exact,
)
from nestedvi.inference.auto import answer_auto
from nestedvi.inference.by_method import answer_by_method
from nestedvi.inference.kept import open_stages
from nestedvi.inference.nested_sampling import answer_nested
from nestedvi.inference.posterior import Posterior, make_posterior
from nestedvi.inference.problem import Problem, make_problem
from nestedvi.inference.tempered_smc import answer_smc
from nestedvi.interrupts import keeping, outside_of_jax
from nestedvi.methods import METHODS, Method
from nestedvi.particles.weights import normalise
from nestedvi.precision import double_precision, in_full_precision
from nestedvi.progress import as_reporter
from nestedvi.storage.compiled import keep_compiled
from nestedvi.storage.stages import KeptStages

__all__ = ["ABOUT", "ANSWERS", "sample"]

# Ways of answering that are no row of the methods table, by the name that `method` gives them; they
# go before rows of that name.
ANSWERS: dict[str, AnswerFunction] = {
    "auto": answer_auto,
    "smc": answer_smc,
    "nested-sampling": answer_nested,
}
# What `nestedvi methods` says of them.
ABOUT = {
    "auto": "Finds the target, learns a base as simple as it allows, samples from that base.",
    "smc": "Tempered SMC with Hamiltonian moves. It learns nothing.",
    "nested-sampling": "Thresholds in place of temperatures: passes first-order transitions.",
}
# Fewer places without a number than this are chance of the edge of a support.
_MISSING = 1e-3


@in_full_precision
def sample(
    key: Key,
    model: Any,
    *,
    model_args: Iterable[Any] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    dim: int | None = None,
    example: PyTree = None,
    method: str | Method = Request.method,
    num_levels: int | None = None,
    num_particles: int = Request.num_particles,
    num_steps: int | None = None,
    progress: Any = False,
    cache: bool | str | Path = False,
    checkpoint: str | Path | None = None,
    devices: Devices = None,
) -> Posterior:
    """Weighted particles, log Z and its standard error for a NumPyro model or an unnormalised log
    density.

    What is compiled is kept: the same model or function answers again without compiling, also for
    other data of the same shapes.

    Warns with every sentence of the posterior's `diagnosis`.

    Args:
        key: all randomness; the same key gives the same answer.
        model: a NumPyro model, called with `model_args` and `model_kwargs`: log Z is its evidence,
            the samples a dict of sites. Or, with `dim` or `example`, a log density: a function of
            one particle, a density, or a NumPyro distribution.
        model_args: positional arguments of the model.
        model_kwargs: keyword arguments of the model.
        dim: the size of a vector particle, for a log density.
        example: any pytree shaped like a particle, in place of `dim`.
        method: "auto" learns a base as simple as the model allows and needs no tuning; "smc" is
            adaptive tempered SMC without learning; "nested-sampling" goes along thresholds of the
            density in place of temperatures, for targets with narrow parts inside of wide ones; or
            a row of `nestedvi methods`, trained for `num_steps` steps (3000) unless it learns
            nothing.
        num_levels: how many densities lead to the target; the method's own number unless given.
            "smc" and "nested-sampling" find it.
        num_particles: how many particles to return, from independent batches.
        num_steps: of training, for rows of the methods table that learn.
        progress: True for a live display, or an object with `start`, `update` and `stop`.
        cache: True keeps compiled programs on disk, in the user's cache folder or a folder given
            here: a new process then does not compile what an earlier one did.
        checkpoint: a folder in which every finished stage is kept. After Ctrl-C or a crash the same
            call goes on with the stage that it was in, and ends with the bits of a call that was
            not stopped. Another model, data, method or key is refused.
        devices: a number or a list of devices, which share the particles' moves and densities and
            independent runs; all there are by default. The answer is the same on any number, to
            rounding.

    Example:
        ```python
        def coin(flips):
            p = numpyro.sample("p", dist.Beta(2.0, 2.0))
            numpyro.sample("x", dist.Bernoulli(p), obs=flips)

        flips = np.array([1, 0, 1, 1])
        posterior = nvi.sample(jax.random.key(0), coin, model_args=(flips,), method="smc")
        print(posterior.log_Z, posterior.log_Z_stderr, posterior.samples["p"].shape)

        def log_density(z):
            return -0.5 * jnp.sum(z**2)

        posterior = nvi.sample(jax.random.key(0), log_density, dim=2, method="smc")
        ```
    """
    check_key(key)
    answer = _find_answer(method)
    _check_folders(cache, checkpoint)
    as_reporter(progress)
    num_particles, num_levels, num_steps = _whole_numbers(num_particles, num_levels, num_steps)
    if cache:
        keep_compiled(None if cache is True else cache)
    with outside_of_jax():
        data: dict[str, Any] = {"model_args": model_args, "model_kwargs": model_kwargs}
        data |= {"dim": dim, "example": example}
        problem = make_problem(model, **data, with_other=answer is answer_auto)
        options = {
            "num_particles": num_particles,
            "method": method,
            "num_levels": num_levels,
            "num_steps": num_steps,
            "progress": progress,
            "mesh": _mesh(devices),
        }
        request = _request(problem, options)
        if problem.other is not None:
            other = _request(problem.other, {**options, "kind": "noncentred "})
            request = replace(request, other=other)
        result = _answer(key, answer, problem, request, checkpoint)
        if result.in_other and problem.other is not None:
            problem = problem.other
        posterior = _as_posterior(result, problem, request.behind(result))
    for sentence in posterior.diagnosis:
        warnings.warn(sentence, NestedviWarning, stacklevel=3)
    return posterior


def _request(problem: Problem, options: Mapping[str, Any]) -> Request:
    return Request(
        problem.density,
        problem.dim,
        prior=problem.prior,
        names=problem.names,
        exact=problem.exact,
        **options,
    )


def _check_folders(cache: bool | str | Path, checkpoint: str | Path | None) -> None:
    check_folder("cache", None if isinstance(cache, bool) else cache)
    check_folder("checkpoint", checkpoint)
    if checkpoint is not None and num_processes() > 1:
        raise ValueError(
            f"sample keeps its stages in one process only; got checkpoint= in {num_processes()}"
            " processes. Leave it out, or sample in one process."
        )


def _whole_numbers(
    num_particles: int, num_levels: int | None, num_steps: int | None
) -> tuple[int, int | None, int | None]:
    """What the user gave, checked."""
    why = "The standard error of log Z needs batches."
    num_particles = check_whole("num_particles", num_particles, least=20, why=why)
    if num_levels is not None:
        why = "The first density and the target are two levels."
        num_levels = check_whole("num_levels", num_levels, least=2, why=why)
    if num_steps is not None:
        num_steps = check_whole("num_steps", num_steps)
    return num_particles, num_levels, num_steps


def _mesh(devices: Devices) -> Mesh | None:
    if devices is None and jax.device_count() > 1:
        devices = jax.devices()
    return as_mesh(devices, "batches")


def _answer(
    key: Key,
    answer: AnswerFunction,
    problem: Problem,
    request: Request,
    folder: str | Path | None,
) -> Answer:
    if folder is None:
        with one_thread(request.dim):
            return _answer_exactly(answer, key, request)
    kept = open_stages(folder, key, problem, request)
    where = f"{kept.folder} holds the stages that are done, the same call goes on from there"
    with closing(kept), keeping(where), one_thread(request.dim):
        try:
            return _answer_exactly(answer, key, _keeping(request, kept))
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(str(stop) or f"stopped; {where}") from None


def _keeping(request: Request, kept: KeptStages) -> Request:
    other = None if request.other is None else replace(request.other, kept=kept)
    return replace(request, kept=kept, other=other)


def _answer_exactly(answer: AnswerFunction, key: Key, request: Request) -> Answer:
    """An answer for the density in double precision: by weights where single precision is all but
    right, else with everything in double.
    """
    try:
        result = answer(key, request)
        return make_exact(result, request.behind(result))
    except RoundingError:
        with double_precision():
            return answer(key, request.in_double())._replace(exact=True)


def _as_posterior(result: Answer, problem: Problem, request: Request) -> Posterior:
    """The answer in the user's form, with what its particles make worth saying."""
    z = jnp.asarray(result.z, jnp.result_type(float))
    remarks = (
        *problem.remarks,
        *problem.remarks_on(z, normalise(np.asarray(result.log_w, np.float64))),
        *_missing_values(result, request),
    )
    if not np.isfinite(result.log_Z):
        raise DensityError(
            f"log Z came out as {result.log_Z}: the density overflows, or has no finite normaliser."
        )
    return make_posterior(_finish_all(problem.finish, z), result, remarks)


def _missing_values(answer: Answer, request: Request) -> tuple[str, ...]:
    """A sentence if the density is NaN at places among the particles: differences of particles lead
    from one to places as likely as not to be asked for.
    """
    z = np.asarray(answer.z, np.float64)
    rng = np.random.default_rng(len(z))
    one, other = rng.integers(len(z), size=(2, len(z)))
    near = (z + 0.5 * (z[one] - z[other])).astype(np.asarray(answer.z).dtype)
    share = float(np.mean(np.isnan(log_values(request.density, near))))
    if share <= _MISSING:
        return ()
    return (
        f"The log density is NaN at {100 * share:.2g} % of the places among the particles: they"
        " count as no mass. If there should be some, log Z is too low; look for what overflows, or"
        ' use jax.config.update("jax_enable_x64", True).',
    )


@eqx.filter_jit
def _finish_all(finish: Callable[[Any], PyTree], z: Float[Array, "particles dim"]) -> PyTree:
    return jax.vmap(finish)(z)


def _find_answer(method: str | Method) -> AnswerFunction:
    if isinstance(method, Method):
        return answer_by_method
    if not isinstance(method, str) or method not in {*METHODS, *ANSWERS}:
        raise UnknownNameError("method", method, {*METHODS, *ANSWERS})
    return ANSWERS.get(method, answer_by_method)
