"""f-divergences D_f(π̌ ‖ π̂) = E_π̂[f(ṽ)], ṽ = π̌/π̂, as functions of log ṽ.

Write F(l) = f(e^l). Then the g(w) = f'(w) w of the gradient table is F'(l), and the coefficient of
a pathwise gradient that sticks the landing is F'(l) − F''(l). A divergence only has to give F.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from nestedvi._types import LogWeights, Scalar
from nestedvi.errors import UnknownNameError

__all__ = [
    "DIVERGENCES",
    "AbstractDivergence",
    "FDivergence",
    "ForwardKL",
    "ReverseKL",
    "alpha_divergence",
    "chi_squared",
    "get_divergence",
    "jensen_shannon",
]

# Second derivatives square the ratio, and e^±80 is within float32: ratios further from one than
# e^±40 contribute nothing, or are a failure that the caller reports.
_LIMIT = 40.0


class AbstractDivergence(eqx.Module):
    """f as a function of the log ratio, with its first two derivatives.

    Example:
        ```python
        class Squared(nvi.AbstractDivergence):
            # f(w) = (log w)², as a function of l = log w; f(1) = 0.

            label = "squared"
            constant_slope = False
            prefers_score = False

            def value(self, log_ratio):
                return log_ratio**2

            def slope(self, log_ratio):
                return 2 * log_ratio

            def landing_slope(self, log_ratio):
                return 2 * log_ratio - 2

        Squared().value(0.5)
        ```
    """

    label: eqx.AbstractClassVar[str]
    constant_slope: eqx.AbstractClassVar[bool]
    """True if g is constant (reverse KL): then log q may simply be held to stick the landing."""
    prefers_score: eqx.AbstractClassVar[bool]
    """True if the score-function gradient of q is the natural one (forward KL: −E_π̌[∂log q])."""

    @abc.abstractmethod
    def value(self, log_ratio: Scalar) -> Scalar:
        """F(l) = f(e^l)."""

    @abc.abstractmethod
    def slope(self, log_ratio: LogWeights) -> LogWeights:
        """g = F'(l), elementwise."""

    @abc.abstractmethod
    def landing_slope(self, log_ratio: LogWeights) -> LogWeights:
        """F'(l) − F''(l), elementwise."""


class ReverseKL(AbstractDivergence):
    """f(w) = −log w: KL(π̂ ‖ π̌), the default whenever reverse kernels are learned.

    Example:
        ```python
        nvi.ReverseKL().value(jnp.log(2.0))  # −log 2
        ```
    """

    label = "reverse-kl"
    constant_slope = True
    prefers_score = False

    def value(self, log_ratio: Scalar) -> Scalar:
        return -log_ratio

    def slope(self, log_ratio: LogWeights) -> LogWeights:
        return -jnp.ones_like(log_ratio)

    def landing_slope(self, log_ratio: LogWeights) -> LogWeights:
        return -jnp.ones_like(log_ratio)


class ForwardKL(AbstractDivergence):
    """f(w) = w log w: KL(π̌ ‖ π̂); its gradient for r_{k-1} exists but is known to be unstable.

    Example:
        ```python
        objective = nvi.Objective(nvi.ForwardKL(), learn="forward")
        nvi.ForwardKL().value(jnp.log(2.0))  # 2 log 2
        ```
    """

    label = "forward-kl"
    constant_slope = False
    prefers_score = True

    def value(self, log_ratio: Scalar) -> Scalar:
        l = jnp.maximum(log_ratio, -_LIMIT)
        return l * jnp.exp(l)

    def slope(self, log_ratio: LogWeights) -> LogWeights:
        l = jnp.maximum(log_ratio, -_LIMIT)
        return (l + 1) * jnp.exp(l)

    def landing_slope(self, log_ratio: LogWeights) -> LogWeights:
        return -jnp.exp(log_ratio)


class FDivergence(AbstractDivergence):
    """Any convex f with f(1) = 0, given as a function of w; derivatives by automatic
    differentiation.

    Args:
        f: a convex function of the ratio w with f(1) = 0, written with `jax.numpy`.

    Example:
        ```python
        pearson = nvi.FDivergence(lambda w: (w - 1) ** 2)
        objective = nvi.Objective(pearson, learn="forward")
        ```
    """

    f: Callable[[Scalar], Scalar]

    label = "f-divergence"
    constant_slope = False
    prefers_score = False

    def value(self, log_ratio: Scalar) -> Scalar:
        return self.f(jnp.exp(jnp.clip(log_ratio, -_LIMIT, _LIMIT)))

    def _derivatives(self, log_ratio: LogWeights) -> tuple[LogWeights, LogWeights]:
        l = jnp.clip(log_ratio, -_LIMIT, _LIMIT)

        def unclipped(l):
            return self.f(jnp.exp(l))

        first = jax.vmap(jax.grad(unclipped))(l)
        return first, jax.vmap(jax.grad(jax.grad(unclipped)))(l)

    def slope(self, log_ratio: LogWeights) -> LogWeights:
        return self._derivatives(log_ratio)[0]

    def landing_slope(self, log_ratio: LogWeights) -> LogWeights:
        first, second = self._derivatives(log_ratio)
        return first - second


def chi_squared() -> FDivergence:
    """Pearson χ²: f(w) = (w − 1)², the variance of the normalised weight."""
    return FDivergence(lambda w: (w - 1) ** 2)


def alpha_divergence(alpha: float) -> FDivergence:
    """f(w) = (w^α − α w − (1 − α)) / (α (α − 1)); α → 1 is forward KL, α → 0 reverse KL, α = 2 half
    of χ².
    """
    if alpha in (0.0, 1.0):
        raise ValueError(
            f"α = {alpha} is a KL divergence: use {'ForwardKL' if alpha else 'ReverseKL'}()."
        )
    return FDivergence(lambda w: (w**alpha - alpha * w - (1 - alpha)) / (alpha * (alpha - 1)))


def jensen_shannon() -> FDivergence:
    """f(w) = ½ (w log w − (w + 1) log((w + 1)/2)): bounded by log 2."""
    return FDivergence(lambda w: 0.5 * (w * jnp.log(w) - (w + 1) * jnp.log((w + 1) / 2)))


DIVERGENCES: dict[str, Callable[[], AbstractDivergence]] = {
    "reverse-kl": ReverseKL,
    "forward-kl": ForwardKL,
    "chi-squared": chi_squared,
    "jensen-shannon": jensen_shannon,
}


def get_divergence(name: str | AbstractDivergence) -> AbstractDivergence:
    """A divergence by name, or the divergence itself."""
    if isinstance(name, AbstractDivergence):
        return name
    if name not in DIVERGENCES:
        raise UnknownNameError("divergence", name, DIVERGENCES)
    return DIVERGENCES[name]()
