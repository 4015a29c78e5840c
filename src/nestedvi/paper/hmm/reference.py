"""A reference log Z for some test instances: tempered SMC over η alone, with the exact likelihood
p(x_{1:K} | η) of the forward algorithm inside. It uses nothing that a row of the table learned.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key, Scalar
from nestedvi.densities.base import AbstractSampleable
from nestedvi.densities.folded import Folded
from nestedvi.grid.cells import cell_key
from nestedvi.paper.hmm.baum_welch import ExpectationMaximisation
from nestedvi.paper.hmm.cells import ReferenceCell
from nestedvi.paper.hmm.model import Clusters, GaussianHMM, simulate
from nestedvi.particles.weights import log_Z_hat_stderr
from nestedvi.smc.from_prior import tempered_smc

__all__ = ["LogPrecision", "by_mean", "compute_reference"]


class LogPrecision(AbstractSampleable):
    """A density of η in other coordinates: the vector z = (μ, log τ), which has no bounds, as a
    random walk needs. p(z) = p(η) |det ∂η/∂z|, and the determinant is Π τ.
    """

    density: AbstractSampleable

    def clusters(self, z: Float[Array, " dim"]) -> Clusters:
        """η from its coordinates."""
        mu, log_tau = jnp.split(z, 2)
        return Clusters(mu, jnp.exp(log_tau))

    def log_gamma(self, z: Float[Array, " dim"]) -> Scalar:
        return self.density.log_gamma(self.clusters(z)) + jnp.sum(jnp.split(z, 2)[1])

    @property
    def log_Z(self) -> Scalar:
        return self.density.log_Z

    @property
    def reparameterised(self) -> bool:
        return False

    def sample(self, key: Key) -> Float[Array, " dim"]:
        eta = self.density.sample(key)
        return jnp.concatenate([eta.mu, jnp.log(eta.tau)])


def by_mean(z: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """(μ, log τ) with the clusters named in the order of their means: one of M! points at which the
    symmetric proposal and the target have the same values.
    """
    mu, log_tau = jnp.split(z, 2)
    order = jnp.argsort(mu)
    return jnp.concatenate([mu[order], log_tau[order]])


def compute_reference(cell: ReferenceCell) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """log Z of the first test instances by tempered SMC over η with the exact likelihood inside.

    It starts from a wide proposal around the modes that Baum-Welch finds, all names of clusters and
    the prior included. Instances whose runs disagree are done again with more particles and moves.
    """
    model = GaussianHMM()
    key_build, key_run = jax.random.split(cell_key(cell.seed, cell.name))
    encoder = ExpectationMaximisation(model, key=key_build, width=1, num_steps=cell.em_steps)
    xs = simulate(cell.seed, "test", cell.test_instances, cell.num_steps)[2][: cell.references]
    log_Z, stderr, temperatures = (np.full(cell.references, np.nan) for _ in range(3))
    todo, rounds = np.arange(cell.references), 0
    while len(todo) and rounds < cell.reference_rounds:
        keys = jax.random.split(
            jax.random.fold_in(key_run, rounds), (len(todo), cell.reference_runs)
        )
        estimates, levels = _tempered_runs(
            keys,
            xs[todo],
            encoder,
            num_particles=cell.reference_particles * 4**rounds,
            num_moves=cell.reference_moves * 2**rounds,
            ess_share=cell.reference_ess_share,
        )
        log_Z[todo], stderr[todo] = (
            np.asarray(x) for x in jax.vmap(log_Z_hat_stderr)(jnp.asarray(estimates))
        )
        temperatures[todo] = levels.mean(axis=1)
        todo, rounds = np.flatnonzero(~(stderr <= cell.reference_stderr)), rounds + 1
    row = {
        "instances": cell.references,
        "log_Z_mean": log_Z.mean(),
        "stderr_mean": stderr.mean(),
        "stderr_max": stderr.max(),
        "share_within_0.05": float(np.mean(stderr <= 0.05)),
        "temperatures_mean": temperatures.mean(),
        "rounds": rounds,
    }
    return row, {"log_Z": log_Z, "stderr": stderr}


class _LogRatio(eqx.Module):
    """log p(η) p(x | η) − log q(η | x): the likelihood of a run from q to the posterior."""

    initial: LogPrecision
    xs: Float[Array, " steps"]

    def __call__(self, z: Float[Array, " dim"]) -> Scalar:
        eta, model = self.initial.clusters(z), GaussianHMM()
        log_joint = model.log_prior(eta) + model.log_likelihood(eta, self.xs)
        return log_joint - self.initial.density.log_gamma(eta)


_propose = eqx.filter_jit(lambda encoder, xs: encoder(GaussianHMM(), xs))


def _tempered_runs(
    keys: Key,
    xs: Float[Array, "instances steps"],
    encoder: ExpectationMaximisation,
    *,
    num_particles: int,
    num_moves: int,
    ess_share: float,
) -> tuple[Float[np.ndarray, "instances runs"], Float[np.ndarray, "instances runs"]]:
    """Several runs of every instance from q(η | x): log Ẑ and the number of temperatures.

    Names of the clusters do not matter, to q as to the posterior: one of their M! orders stands for
    all.
    """
    num_runs, copies = keys.shape[1], math.factorial(GaussianHMM().num_clusters)
    log_Z, levels = np.zeros((2, xs.shape[0], num_runs))
    for i, series in enumerate(xs):
        initial = LogPrecision(_propose(encoder, series))
        for r in range(num_runs):
            run = tempered_smc(
                keys[i, r],
                Folded(initial, by_mean, copies),
                _LogRatio(initial, series),
                num_particles=num_particles,
                num_moves=num_moves,
                ess_share=ess_share,
            )
            log_Z[i, r], levels[i, r] = run.log_Z_hat, run.num_levels
    return log_Z, levels
