"""Independent batches, of a sampler that is ready or of a run that follows another, and what they
say together.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from nestedvi._types import Key
from nestedvi.densities.affine import Pullback
from nestedvi.devices import spread
from nestedvi.inference.answer import Answer, LevelTrace, Trace, weight_curve
from nestedvi.particles.weights import ess, log_Z_hat_stderr
from nestedvi.paths.annealing import Annealing
from nestedvi.sampler.checks import check_run
from nestedvi.sampler.nested import NestedSampler
from nestedvi.sampler.run import Run, run
from nestedvi.smc.tempering import Tempering

__all__ = [
    "answer_from_followed",
    "answer_from_runs",
    "run_batches",
    "trace_runs",
    "trace_tempering",
]


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


def answer_from_followed(run: Tempering, target: Pullback, num_particles: int) -> Answer:
    """Batches that followed a tuned run as one answer in the density's own coordinates."""
    log_Z, stderr = log_Z_hat_stderr(run.log_Z_hats)
    z = target.map(jnp.asarray(run.z[:num_particles]))
    return Answer(
        z,
        run.log_w.reshape(-1)[:num_particles],
        float(log_Z),
        float(stderr),
        num_batches=len(run.log_w),
        num_ancestors=int(run.origins.sum()),
        drawn_log_w=run.drawn_log_w,
        trace=trace_tempering(run),
    )


def trace_tempering(run: Tempering) -> Trace:
    """Batches of one run, along the same temperatures."""
    return Trace(
        run.log_Z_hats,
        run.origins,
        tuple(_tempered_levels(run, batch) for batch in range(len(run.log_w))),
        weight_curve(run.drawn_log_w),
    )


def _tempered_levels(run: Tempering, batch: int) -> LevelTrace:
    """The weights that lead to temperature k are those of the particles at k − 1."""
    steps, num = np.diff(run.betas, prepend=0.0), run.log_w.shape[1]
    ratios = run.log_ratios.reshape(-1, *run.log_w.shape)[:, batch]
    shares = [
        float(ess(step * log_ratio)) / num for step, log_ratio in zip(steps, ratios, strict=False)
    ]
    return LevelTrace(run.betas, np.array(shares))


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
