"""What a density is: `log_gamma(z)` for one particle `z`, any pytree. Many particles are that
function vectorised, unless a density draws or scores them faster on the host.

`AbstractSampleable` adds exact draws and the exact normaliser; initial proposals, priors and test
targets are of that kind. Two densities at one point have a geometric mean there, which is all that
annealing is.
"""

import abc
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from nestedvi._types import Key, Particle, Scalar
from nestedvi.compilation import compiled_soon
from nestedvi.devices import size_of, spread
from nestedvi.pieces import piece_size, through_pieces

__all__ = [
    "AbstractDensity",
    "AbstractSampleable",
    "Density",
    "Numpyro",
    "Scaled",
    "as_density",
    "as_sampleable",
    "check_shape",
    "log_geometric",
    "log_values",
]

# So many particles at once, on a CPU.
_PIECE = 512


class AbstractDensity(eqx.Module):
    """An unnormalised density γ = Z π on one particle.

    Example:
        ```python
        class Quartic(nvi.AbstractDensity):
            def log_gamma(self, z):
                return -jnp.sum(z**4)

        Quartic().log_gamma(jnp.ones(2))
        ```
    """

    @abc.abstractmethod
    def log_gamma(self, z: Particle) -> Scalar:
        """log γ(z); −inf is legal, NaN is not."""

    def precomputed(self) -> Self:
        """The same density with what does not depend on z computed once (an inverse, a
        determinant), for a program that evaluates it many times. It is for use inside that program
        only: where parameters are learned, it must be asked for anew at every step.
        """
        return self


class AbstractSampleable(AbstractDensity):
    """A density that can be sampled exactly and whose normaliser is known.

    Example:
        ```python
        class Uniform(nvi.AbstractSampleable):
            # On the unit square, not normalised: γ = 2.

            log_Z = jnp.log(2.0)
            reparameterised = True

            def log_gamma(self, z):
                return jnp.where(jnp.all((z >= 0) & (z <= 1)), jnp.log(2.0), -jnp.inf)

            def sample(self, key):
                return jax.random.uniform(key, (2,))

        Uniform().sample(jax.random.key(0))
        ```
    """

    @property
    @abc.abstractmethod
    def log_Z(self) -> Scalar:
        """log ∫γ, exact."""

    @property
    @abc.abstractmethod
    def reparameterised(self) -> bool:
        """Whether a draw carries the gradient of the parameters (pathwise)."""

    @abc.abstractmethod
    def sample(self, key: Key) -> Particle:
        """One exact draw from π."""

    def sample_many(self, key: Key, num: int) -> Particle:
        """`num` exact draws, on a leading axis. A density may draw them on the host instead, where
        a loop would wait for the compiler.
        """
        return _sample_many(key, self, num)

    @property
    def drawn_on_host(self) -> bool:
        """Whether `sample_many` compiles nothing, so that any number of draws is as good."""
        return False

    def log_prob_many(self, z: Particle) -> np.ndarray:
        """log π of many particles, as an array on the host. A density of a few matrix products may
        compute it there.
        """
        values = through_pieces(
            lambda piece: _log_prob_many(self, jax.device_put(piece)),
            np.asarray(z),
            piece_size(_PIECE),
        )
        return values.astype(np.float64)


@compiled_soon
def _log_prob_many(density: AbstractSampleable, z: Particle) -> Array:
    ready = density.precomputed()
    return jax.vmap(ready.log_gamma)(z) - ready.log_Z


@compiled_soon
def _sample_many(key: Key, density: AbstractSampleable, num: int) -> Particle:
    return jax.vmap(density.sample)(jax.random.split(key, num))


@compiled_soon
def _values(z: Float[Array, "piece dim"], target: AbstractDensity) -> Float[Array, " piece"]:
    return jax.vmap(target.precomputed().log_gamma)(z)


def log_values(
    target: AbstractDensity, z: Float[Array, "num dim"] | np.ndarray, mesh: Mesh | None = None
) -> np.ndarray:
    """log γ of many particles, on the host; NaN stays NaN."""
    z = np.asarray(z)

    def values(piece: np.ndarray) -> Array:
        if mesh is None:
            return _values(jax.device_put(piece), target)
        return spread(_values, mesh, "batches", piece, target)

    size = piece_size(_PIECE) * size_of(mesh, "batches")
    return through_pieces(values, z, size).astype(np.float64)


class Density(AbstractDensity):
    """A plain function `z -> log γ(z)` as a density.

    Args:
        fn: a function of one particle, any pytree, that returns a scalar.

    Example:
        ```python
        density = nvi.Density(lambda z: -0.5 * jnp.sum(z**2))
        density.log_gamma(jnp.ones(3))
        ```
    """

    fn: Callable[[Particle], Scalar]

    def log_gamma(self, z: Particle) -> Scalar:
        value = jnp.asarray(self.fn(z))
        if value.shape != ():
            raise ValueError(
                f"A log density must return a scalar for one particle; got shape {value.shape}."
                " Write it for a single particle (the library vectorises) and sum over its"
                " coordinates."
            )
        return value


class Numpyro(AbstractSampleable):
    """A NumPyro distribution, batch and event dimensions counted as one particle.

    Where it is learned, its parameters are as NumPyro stores them: a scale may step over zero.
    `DiagonalNormal` cannot.
    """

    distribution: Any

    def log_gamma(self, z: Particle) -> Scalar:
        return jnp.sum(self.distribution.log_prob(z))

    @property
    def log_Z(self) -> Scalar:
        return jnp.zeros(())

    @property
    def reparameterised(self) -> bool:
        return bool(self.distribution.has_rsample)

    def sample(self, key: Key) -> Particle:
        return self.distribution.sample(key)


class Scaled(AbstractSampleable):
    """γ = Z π for a normalised, sampleable π and a known log Z."""

    base: AbstractSampleable
    log_scale: Scalar

    def __init__(self, base: AbstractSampleable, log_scale: float | Scalar):
        self.base = base
        self.log_scale = jnp.asarray(log_scale, dtype=jnp.result_type(float))

    def log_gamma(self, z: Particle) -> Scalar:
        return self.base.log_gamma(z) + self.log_scale

    @property
    def log_Z(self) -> Scalar:
        return self.base.log_Z + self.log_scale

    @property
    def reparameterised(self) -> bool:
        return self.base.reparameterised

    def sample(self, key: Key) -> Particle:
        return self.base.sample(key)


def check_shape(z: Any, shape: tuple[int, ...], who: str) -> None:
    """A density of a fixed dimension must not broadcast over a particle of another."""
    if jnp.shape(z) != shape:
        raise ValueError(f"{who} scores particles of shape {shape}; got shape {jnp.shape(z)}.")


def as_density(thing: Any) -> AbstractDensity:
    """A density from a density, a NumPyro distribution or a function `z -> log γ(z)`."""
    if isinstance(thing, AbstractDensity):
        return thing
    if isinstance(thing, Distribution):
        return Numpyro(thing)
    if callable(thing):
        return Density(thing)
    raise TypeError(
        "Expected a density, a NumPyro distribution or a function z -> log density; got"
        f" {type(thing).__name__}."
    )


def as_sampleable(thing: Any) -> AbstractSampleable:
    """A density with exact samples, or an error that says what is missing."""
    density = as_density(thing)
    if not isinstance(density, AbstractSampleable):
        raise TypeError(
            "Expected something that can be sampled exactly (a NumPyro distribution,"
            f" nvi.DiagonalNormal, …); got {type(density).__name__}, which can only be scored."
        )
    return density


def _power(beta: Scalar, log_density: Scalar) -> Scalar:
    """β log γ with 0 · (−inf) = 0; where γ is zero both derivatives are 0, so that a weight of zero
    silences them.
    """
    dead = jnp.isneginf(log_density)
    return jnp.where(
        dead, jnp.where(beta == 0, 0.0, -jnp.inf), beta * jnp.where(dead, 0.0, log_density)
    )


def log_geometric(beta: Scalar, log_base: Scalar, log_target: Scalar) -> Scalar:
    """log γ_β = (1 − β) log base + β log target, at one point."""
    return _power(1 - beta, log_base) + _power(beta, log_target)
