"""What a run's diagnostics say about its densities: errors that name the level, and warnings.

Everything here works on the host, on what a run reported (one run or a batch of them). It refuses
to run a sampler again.
"""

import numpy as np
from jaxtyping import ArrayLike, Shaped

from nestedvi.errors import DensityError
from nestedvi.kernels.base import Transition
from nestedvi.kernels.langevin import LangevinTransition
from nestedvi.paths.annealing import Annealing
from nestedvi.sampler.nested import NestedSampler
from nestedvi.sampler.run import LevelInfo

__all__ = ["check_run", "support_warnings"]


def _runs(values: ArrayLike) -> Shaped[np.ndarray, "runs levels"]:
    """A diagnostic of one run or of any batch of runs, a row a run."""
    return np.asarray(values).reshape(-1, np.shape(values)[-1])


def check_run(info: LevelInfo, num_particles: int) -> None:
    """Raises `DensityError`, with the level, if a density or kernel returned NaN or +inf, or if all
    weights vanished.
    """
    num_nan = _runs(info.num_nan).max(axis=0)
    if num_nan.any():
        k = int(np.argmax(num_nan > 0))
        raise DensityError(
            f"Level {k + 1}: the log increment is NaN for {int(num_nan[k])} of {num_particles}"
            " particles. A log density may return −inf where it has no mass, but never NaN; check"
            " γ_k, q_k and r_{k-1} there."
        )
    infinite = np.isposinf(_runs(info.log_Z_hat)).any(axis=0)
    if infinite.any():
        raise DensityError(
            f"Level {int(np.argmax(infinite)) + 1}: a weight is infinite. A log density returned"
            " +inf, or a proposal −inf where it drew."
        )
    dead = np.isneginf(_runs(info.log_Z_hat)).any(axis=0)
    if dead.any():
        k = int(np.argmax(dead))
        raise DensityError(
            f"Level {k + 1}: all {num_particles} weights are zero (every particle has log density"
            " −inf there). Widen the initial density, use more levels, or more particles."
        )


def support_warnings(sampler: NestedSampler, info: LevelInfo) -> tuple[str, ...]:
    """A sentence when an intermediate density excludes particles that a reverse kernel may well
    propose to come from.

    Proper weighting needs r_{k-1}(· | z_k) to stay where γ_{k-1} has mass; a Gaussian does not, and
    log Ẑ is then too low.
    """
    if not isinstance(sampler.path, Annealing) or not isinstance(
        sampler.level(2).transition, Transition | LangevinTransition
    ):
        return ()
    excluded = _runs(info.num_excluded).max(axis=0)[:-1]
    if not excluded.any():
        return ()
    return (
        (
            f"The density of level {int(np.argmax(excluded > 0)) + 1} is zero for some particles."
            " Reverse kernels that reach outside its support make log Ẑ too low. Use unbounded"
            " coordinates, MCMC moves, or K = 2."
        ),
    )
