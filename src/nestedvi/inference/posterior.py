"""What `sample` returns: weighted particles, log Z, what they are worth, and ways to summarise,
draw and export them. It runs no sampler.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from nestedvi._types import Key
from nestedvi.inference.answer import Answer, Cost, Trace
from nestedvi.inference.problem import named_sites
from nestedvi.inference.summary import Summary, scalar_elements, summarise, weighted_mean
from nestedvi.particles.weights import ess, khat, normalise, systematic
from nestedvi.storage.files import provenance

__all__ = ["Expectation", "Posterior", "diagnose", "make_posterior"]

_KHAT, _STDERR, _ESS, _ROUNDING = 0.7, 0.5, 50.0, 0.01
# So many families a batch make a better standard error than the batches do.
_FAMILIES = 10


class Expectation(NamedTuple):
    """A mean under the posterior and its standard error, both shaped like what was averaged (any
    pytree).
    """

    mean: PyTree
    stderr: PyTree


class Posterior(NamedTuple):
    """Weighted particles for the density, and what is known of its normaliser.

    `samples` is a dict of sites in their own support (deterministic ones too) for a NumPyro model,
    else an array or pytree; every leaf has a leading particle axis. `log_Z_stderr` comes from
    independent batches, or from the weights where draws are independent; `batch` is the one that a
    particle is from. `family` is what standard errors of means take for independent: the
    descendants of one first draw where there are ten of those a batch, else a batch. `ess` is how
    many independent draws the particles are worth at most: the effective sample size of their
    weights, or the number of first draws that they descend from. `khat` is NaN where all weights
    of a batch are equal and so cannot tell. `diagnosis` says in whole sentences why not to trust
    the rest, and is empty when nothing was found.

    Example:
        ```python
        def log_density(z):
            return -0.5 * jnp.sum(z**2)

        posterior = nvi.sample(jax.random.key(0), log_density, dim=2, method="smc")
        print(posterior.summary())
        mean, error = posterior.expectation(lambda z: z[0] > 0)
        draws = posterior.resample(jax.random.key(1), 100)
        ```
    """

    samples: PyTree
    log_weights: Float[np.ndarray, " particles"]
    log_Z: float
    log_Z_stderr: float
    ess: float
    khat: float
    batch: Int[np.ndarray, " particles"]
    diagnosis: tuple[str, ...] = ()
    sampler: Any = None
    cost: Cost | None = None
    timings: Mapping[str, float] = MappingProxyType({})
    trace: Trace | None = None
    family: Int[np.ndarray, " particles"] | None = None

    def expectation(self, fn: Callable[[PyTree], Any]) -> "Expectation":
        """The mean of `fn`, a function of one particle, under the posterior, with a standard error
        from the families.

        ```python
        posterior.expectation(lambda sites: sites["slope"] > 0)
        ```
        """
        leaves, structure = jax.tree.flatten(jax.vmap(fn)(self.samples))
        averages = [
            weighted_mean(np.asarray(x, np.float64), self.normalised_weights(), self._independent)
            for x in leaves
        ]
        return Expectation(
            *(jax.tree.unflatten(structure, part) for part in zip(*averages, strict=True))
        )

    def resample(self, key: Key, num: int) -> PyTree:
        """`num` draws with equal weights, by systematic resampling, in random order."""
        if num < 1:
            raise ValueError(f"At least one draw; got num = {num}.")
        key_comb, key_order = jax.random.split(key)
        index = systematic(float(jax.random.uniform(key_comb)), normalise(self.log_weights), num)
        index = np.asarray(jax.random.permutation(key_order, index))
        return jax.tree.map(lambda x: x[index], self.samples)

    def summary(self) -> Summary:
        """Weighted mean, standard deviation and quantiles of every scalar element; `print` it, or
        take its `to_dict()`.
        """
        rows = summarise(self.samples, self.normalised_weights(), self._independent)
        num = len(self.log_weights)
        return Summary(
            rows, self.log_Z, self.log_Z_stderr, self.ess, num, self.khat, self.diagnosis
        )

    def to_arviz(self, key: Key | None = None, num: int | None = None) -> Any:
        """Equally weighted draws as ArviZ inference data (needs the extra `nestedvi[arviz]`).

        Without `num` as many as the effective sample size, so that ArviZ counts no draw for more
        than it is worth; without `key` the same draws every time.
        """
        try:
            import arviz
        except ImportError as error:
            raise ImportError(
                "ArviZ is not installed; pip install 'nestedvi[arviz]' brings it."
            ) from error
        draws = self.resample(
            jax.random.key(0) if key is None else key,
            max(4, round(self.ess)) if num is None else num,
        )
        known = {name: getattr(self, name) for name in ("log_Z", "log_Z_stderr", "ess", "khat")}
        attributes = {
            **known,
            "diagnosis": " ".join(self.diagnosis),
            "inference_library": "nestedvi",
        }
        sites = {name: np.asarray(x)[None] for name, x in named_sites(draws).items()}
        return arviz.from_dict(posterior=sites, posterior_attrs=attributes)

    def plot(self) -> Any:
        """A matplotlib figure: weighted marginals of the scalar elements, with pairs where there
        are few of them.
        """
        # matplotlib takes a second to import: only those who look at a figure pay for it.
        from nestedvi.plot.posterior import posterior_figure

        title = (
            f"log Z = {self.log_Z:.3f} ± {self.log_Z_stderr:.3f},  ESS"
            f" {self.ess:.0f}{_tail(',  ', self.khat)}"
        )
        return posterior_figure(
            dict(scalar_elements(self.samples)), self.normalised_weights(), title=title
        )

    def report(self, path: str | Path = "report.html", *, title: str = "Posterior") -> Path:
        """Writes one page that opens in any browser, without a network: the diagnosis first, then
        log Z with its batches, marginals and pairs, temperatures and weights by level, ancestors,
        cost, and what made it. Returns the path.
        """
        from nestedvi.inference.report import posterior_content, write_posterior_report

        content = {**posterior_content(self), **provenance()}
        return write_posterior_report(path, self, content, title=title)

    @property
    def _independent(self) -> np.ndarray:
        return self.batch if self.family is None else self.family

    def normalised_weights(self) -> np.ndarray:
        """The particles' weights, scaled to sum to one, in double precision."""
        w_bar = np.asarray(normalise(self.log_weights), dtype=np.float64)
        return w_bar / w_bar.sum()

    def __repr__(self) -> str:
        sites = ", ".join(
            f"{name}{list(np.shape(x)[1:]) or ''}" for name, x in named_sites(self.samples).items()
        )
        warned = f", {len(self.diagnosis)} in diagnosis" if self.diagnosis else ""
        return (
            f"Posterior(log Z = {self.log_Z:.4f} ± {self.log_Z_stderr:.4f}, ESS {self.ess:.0f} of"
            f" {len(self.log_weights)}{_tail(', ', self.khat)}, sites: {sites}{warned})"
        )


def _tail(before: str, khat: float) -> str:
    """k̂, where the weights have one."""
    return "" if np.isnan(khat) else f"{before}k̂ = {khat:.2f}"


def diagnose(
    num_particles: int, log_Z_stderr: float, ess: float, khat: float, rounding: float = 0.0
) -> tuple[str, ...]:
    """What the weights say against themselves, one sentence each; `rounding` is the error of log Z
    that the precision makes.
    """
    sentences = []
    if khat > _KHAT:
        sentences.append(
            f"The largest weights dominate (k̂ = {khat:.2f} > {_KHAT}): log Z and expectations may"
            " be far off, however small the standard error; use more levels, more steps or another"
            " method."
        )
    if ess < min(_ESS, 0.5 * num_particles):
        sentences.append(
            f"The {num_particles} particles are worth {ess:.0f} independent draws: means and"
            " quantiles are rough, and parts of the posterior may be missing; use more particles"
            " or another method."
        )
    if not log_Z_stderr <= _STDERR:
        sentences.append(
            f"The batches disagree on log Z (standard error {log_Z_stderr:.2f} > {_STDERR}): it may"
            " be off by more than that; use more particles, levels or steps."
        )
    if rounding > max(_ROUNDING, log_Z_stderr):
        sentences.append(
            f"log Z is so large that single precision rounds it to {rounding:.2g}, which the"
            " standard error does not see: take a constant off the log density, or"
            ' jax.config.update("jax_enable_x64", True).'
        )
    return tuple(sentences)


def make_posterior(samples: PyTree, answer: Answer, remarks: tuple[str, ...] = ()) -> Posterior:
    """A posterior from samples in the user's form and the answer that they are from, with its
    effective sample size, k̂ and diagnosis; `remarks` are what was known before the weights."""
    log_w, log_Z, stderr = (
        np.asarray(answer.log_w, np.float64),
        float(answer.log_Z),
        float(answer.log_Z_stderr),
    )
    size = float(ess(log_w))
    if answer.num_ancestors is not None:
        size = min(size, float(answer.num_ancestors))
    weights = [w for w in (log_w, answer.drawn_log_w) if w is not None and answer.weighted]
    # Few particles have too few large weights for a k̂ of their own: what there is counts.
    tail = max((k for k in map(khat, weights) if not np.isnan(k)), default=float("nan"))
    digits = np.float64 if answer.exact else jnp.result_type(float)
    rounding = abs(log_Z) * float(jnp.finfo(digits).eps)
    diagnosis = (*remarks, *answer.diagnosis, *diagnose(len(log_w), stderr, size, tail, rounding))
    batch = np.arange(len(log_w)) // -(-len(log_w) // answer.num_batches)
    return Posterior(
        samples,
        log_w,
        log_Z,
        stderr,
        size,
        tail,
        batch,
        diagnosis,
        answer.sampler,
        answer.cost,
        answer.timings,
        answer.trace,
        _families(answer.family, batch),
    )


def _families(family: np.ndarray | None, batch: np.ndarray) -> np.ndarray:
    """Numbered from zero; batches where there are too few of them to tell a variance better."""
    if family is None:
        return batch
    _, numbered = np.unique(family, return_inverse=True)
    return batch if numbered.max() + 1 < _FAMILIES * (batch.max() + 1) else numbered
