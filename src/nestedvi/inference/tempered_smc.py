"""`method="smc"`: adaptive tempered SMC with Hamiltonian moves. It learns nothing, and every
learned method must beat it.
"""

import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key
from nestedvi.densities.affine import Affine
from nestedvi.densities.mixtures import Mixture, ScaleMixture
from nestedvi.fitting.directions import whiten
from nestedvi.inference.answer import Answer, Cost, Request
from nestedvi.inference.search import search, unfinished
from nestedvi.inference.stages import Stages
from nestedvi.inference.trace import trace_tempering
from nestedvi.particles.weights import log_Z_hat_stderr
from nestedvi.randomness import split_on_host
from nestedvi.smc.tempering import Plan, Tempering, tempering

__all__ = ["answer_smc"]

# A coarse run with half of the particles says where a second base of two widths is to be, in units
# of what it runs; then temperatures are closer together, with more moves while it is hot, in
# batches large enough to be tuned from.
_COARSE = Plan(ess_share=0.5, moves=3, draws=16)
_AROUND = (1.5, 3.0)
_FINE = Plan(ess_share=0.93, moves=5, draws=96, hot=5)
_BATCHES = 4
# More than this share, and this number, of particles that hardly move at the end are no chance:
# where one step suits all it is a few in a thousand, in a funnel one in thirty.
_STUCK_SHARE, _STUCK = 0.015, 5


def answer_smc(key: Key, request: Request) -> Answer:
    """`num_particles` from four adaptive runs; the number of levels is found, not given."""
    request.refuse("num_levels", "it finds its temperatures itself.")
    request.refuse("num_steps", "it learns nothing.")
    key_search, key_run = split_on_host(key, 2)
    dim, num_particles = request.dim, request.num_particles
    num_coarse, per_batch = -(-num_particles // 2), -(-num_particles // _BATCHES)
    with Stages(request.progress) as stages:
        stages.begin("search")
        target, coarse = search(key_search, request, num_coarse, _COARSE)
        stages.done(log_Z=coarse.log_Z_hat)
        mean, root, _ = whiten(coarse.z)
        base = Mixture(
            (ScaleMixture(dim), Affine(ScaleMixture(dim, _AROUND), mean, root)), jnp.zeros(2)
        )
        runs = []
        stages.begin("tempering")
        for k in split_on_host(key_run, _BATCHES):
            runs.append(
                tempering(
                    k, base, target, _FINE, num_particles=per_batch, step_size=coarse.step_size
                )
            )
            stages.done(log_Z=runs[-1].log_Z_hat)
    z = jnp.concatenate([f.z for f in runs])
    estimates = np.array([f.log_Z_hat for f in runs])
    log_Z, between = log_Z_hat_stderr(estimates)
    # Four batches may agree by chance: they are not believed to be closer than their own weights
    # make likely.
    within = np.sqrt(np.mean([f.log_Z_variance for f in runs]) / _BATCHES)
    # Particles of a batch are equally weighted; batches count by their estimates.
    log_w = jnp.asarray(np.repeat(estimates, per_batch)[:num_particles], z.dtype)
    diagnosis = (
        *{sentence for f in runs for sentence in unfinished(f)},
        *_too_few(per_batch, dim),
        *_stalled(runs, per_batch),
    )

    def asked(name: str) -> float:
        """Of the target, for each particle that is returned."""
        return float(getattr(coarse, name)) * num_coarse / num_particles + float(
            np.mean([getattr(f, name) for f in runs])
        )

    return Answer(
        target.map(z)[:num_particles],
        log_w,
        float(log_Z),
        max(float(between), float(within)),
        num_batches=_BATCHES,
        num_ancestors=sum(int(f.origins) for f in runs),
        diagnosis=diagnosis,
        cost=Cost(0.0, asked("gradients"), asked("values")),
        weighted=False,
        timings=stages.timings,
        trace=trace_tempering(runs),
    )


def _too_few(per_batch: int, dim: int) -> tuple[str, ...]:
    if per_batch > 2 * dim:
        return ()
    return (
        (
            f"{per_batch} particles a batch are too few for {dim} dimensions: moves cannot be tuned"
            " from them, and log Z may be far off. Use num_particles of"
            f" {2 * _BATCHES * dim + _BATCHES} or more."
        ),
    )


def _stalled(runs: list[Tempering], per_batch: int) -> tuple[str, ...]:
    share = float(np.mean([f.stuck for f in runs]))
    if share <= _STUCK_SHARE or share * per_batch * len(runs) < _STUCK:
        return ()
    return (
        (
            f"{100 * share:.1f} % of the particles hardly move: steps that suit the others are too"
            " long where those are, as in a funnel's neck. Batches that all miss such a part"
            " agree, and log Z is then too low by more than its standard error says; use"
            " method='auto', which learns where it is, or other coordinates."
        ),
    )
