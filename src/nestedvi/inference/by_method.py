"""The rows of `nestedvi methods` as answers: find the target, build the row's sampler there, train
it, run it in independent batches, and make one answer of them. It refuses to know the user's sites:
`problem` has made vectors of them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from nestedvi._types import Key
from nestedvi.densities.affine import Pullback, in_units_of
from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.devices import spread
from nestedvi.inference.answer import Answer, LevelTrace, Request, Trace, unfinished, weight_curve
from nestedvi.inference.search import search
from nestedvi.methods import build, get_method
from nestedvi.particles.weights import log_Z_hat_stderr
from nestedvi.paths.annealing import Annealing
from nestedvi.sampler.checks import check_run, support_warnings
from nestedvi.sampler.nested import NestedSampler
from nestedvi.sampler.run import Run, run
from nestedvi.smc.tempering import Plan
from nestedvi.train.fit import fit

__all__ = [
    "answer_by_method",
    "answer_from_runs",
    "run_batches",
    "trace_runs",
]

# Training happens in coordinates where the pilot's spread is this: the kernels' unit noise is a
# fifth of it, as in the paper.
_SPREAD = 5.0
_PILOT, _PILOT_PARTICLES = Plan(ess_share=0.6, moves=3, draws=4), 1000
_BATCHES = 10
_LEVELS, _STEPS = 8, 3000


def answer_by_method(key: Key, request: Request) -> Answer:
    """`num_particles` weighted particles from ten independent batches of the trained sampler."""
    dim, num_particles = request.dim, request.num_particles
    num_levels, num_steps = request.num_levels or _LEVELS, request.num_steps or _STEPS
    key_pilot, key_build, key_fit, key_run = jax.random.split(key, 4)
    row = get_method(request.method)
    if row.objective is None:
        request.refuse("num_steps", "it learns nothing.")
    pilot = request.keep("search", lambda: search(key_pilot, request, _PILOT_PARTICLES, _PILOT))
    target = in_units_of(pilot.target, pilot.run.z, width=_SPREAD)
    sampler, objective = build(
        key_build,
        row,
        target=target,
        initial=DiagonalNormal(jnp.zeros(dim), _SPREAD),
        num_levels=num_levels,
    )
    if objective is not None:
        training = {
            "num_steps": num_steps,
            "num_particles": max(16, 512 // num_levels),
            "progress": request.progress,
            "checkpoint": None if request.kept is None else request.kept.folder / "training",
        }
        sampler = fit(key_fit, sampler, objective, **training).sampler
    keys = jax.random.split(key_run, _BATCHES)
    per_batch = -(-num_particles // _BATCHES)
    runs = request.keep("run", lambda: run_batches(keys, sampler, per_batch, mesh=request.mesh))
    diagnosis = (*unfinished(pilot.run), *support_warnings(sampler, runs.info))
    return answer_from_runs(runs, target, num_particles)._replace(
        diagnosis=diagnosis, sampler=sampler, trace=trace_runs(runs, sampler)
    )


def run_batches(
    keys: Key,
    sampler: NestedSampler,
    num_particles: int,
    draws: int = 1,
    mesh: Mesh | None = None,
) -> Run:
    """A run of `num_particles` for each key, stacked. The devices of a mesh share the keys."""
    if mesh is None:
        return _runs(keys, sampler, num_particles, draws)
    return spread(_runs, mesh, "batches", keys, sampler, num_particles, draws)


@eqx.filter_jit
def _runs(keys: Key, sampler: NestedSampler, num_particles: int, draws: int) -> Run:
    # One after the other: less to compile than side by side.
    return jax.lax.map(lambda k: run(k, sampler, num_particles, draws=draws), keys)


_num_ancestors = jax.jit(jax.vmap(lambda one: one.num_ancestors))
_log_Z = jax.jit(jax.vmap(lambda one: one.log_Z_hat))


def answer_from_runs(runs: Run, target: Pullback, num_particles: int) -> Answer:
    """The batches' particles as one answer in the density's own coordinates; raises if a level
    failed.
    """
    num_batches, per_batch, dim = runs.particles.z.shape
    check_run(runs.info, per_batch)
    log_Z, stderr = log_Z_hat_stderr(runs.log_Z_hat)
    z = target.map(runs.particles.z.reshape(-1, dim)[:num_particles])
    log_w = runs.particles.log_w.reshape(-1)[:num_particles]
    ancestors = int(jnp.sum(_num_ancestors(runs)))
    return Answer(z, log_w, float(log_Z), float(stderr), num_batches, ancestors)


def trace_runs(runs: Run, sampler: NestedSampler) -> Trace:
    """Batches of one sampler, stacked."""
    num_batches, per_batch = runs.particles.log_w.shape
    draws = np.full(runs.info.ess.shape[1], per_batch)
    draws[0] = runs.drawn_log_w.shape[1]
    shares = np.asarray(runs.info.ess, np.float64) / draws
    beta = None
    if isinstance(sampler.path, Annealing):
        beta = np.asarray(sampler.path.schedule.betas(), np.float64)
    return Trace(
        np.asarray(_log_Z(runs), np.float64),
        np.asarray(_num_ancestors(runs)),
        tuple(LevelTrace(beta, shares[b]) for b in range(num_batches)),
        weight_curve(np.ravel(runs.drawn_log_w)),
    )
