"""The rows of `nestedvi methods` as answers: find the target, build the row's sampler there, train
it, run it in batches. It refuses to know the user's sites: `problem` has made vectors of them.
"""

import jax
import jax.numpy as jnp

from nestedvi._types import Key
from nestedvi.densities.gaussian import DiagonalNormal
from nestedvi.inference.answer import Answer, Request
from nestedvi.inference.batches import answer_from_runs, run_batches, trace_runs
from nestedvi.inference.search import in_units_of, search, unfinished
from nestedvi.methods import build, get_method
from nestedvi.sampler.checks import support_warnings
from nestedvi.smc.tempering import Plan
from nestedvi.train.fit import fit

__all__ = ["answer_by_method"]

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
