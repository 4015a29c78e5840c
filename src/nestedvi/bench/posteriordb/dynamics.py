"""Models whose mean solves a differential equation: lynx and hare, and a drug that is absorbed and
eliminated.

Both equations are solved with fixed steps, as one compiled loop that can be differentiated as often
as one likes. Steps are so small that the error is far below the noise.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist

__all__ = ["lotka_volterra", "michaelis_menten", "one_compartment", "predator_and_prey"]

_STEPS_A_YEAR, _STEPS_A_DAY = 25, 100


def _solve(
    step: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    start: jax.Array,
    times: np.ndarray,
    steps_a_unit: int,
) -> jax.Array:
    """The states at `times`, from `start` at time 0, by `step(state, time, size)`; all intervals
    have the same number of steps.
    """
    edges = np.concatenate([[0.0], np.asarray(times, dtype=float)])
    num = int(np.ceil(np.diff(edges).max() * steps_a_unit))

    def interval(state, ends):
        begin, size = ends[0], (ends[1] - ends[0]) / num

        def one(state, i):
            return step(state, begin + i * size, size), None

        state, _ = jax.lax.scan(one, state, jnp.arange(num))
        return state, state

    ends = jnp.asarray(np.column_stack([edges[:-1], edges[1:]]), dtype=start.dtype)
    return jax.lax.scan(interval, start, ends)[1]


def predator_and_prey(theta: jax.Array, start: jax.Array, times: np.ndarray) -> jax.Array:
    """Logarithms of both populations: ẋ = (α − β y) x, ẏ = (−γ + δ x) y, by the classic fourth
    order method. In logarithms no population falls below zero.
    """
    grow, eaten, starve, fed = theta

    def speed(log_state):
        prey, predator = jnp.exp(log_state)
        return jnp.stack([grow - eaten * predator, -starve + fed * prey])

    def step(state, _, size):
        first = speed(state)
        second = speed(state + size / 2 * first)
        third = speed(state + size / 2 * second)
        fourth = speed(state + size * third)
        return state + size / 6 * (first + 2 * second + 2 * third + fourth)

    return _solve(step, jnp.log(start), times, _STEPS_A_YEAR)


def lotka_volterra(times: np.ndarray, first: jax.Array, later: jax.Array) -> None:
    """Pelts of hares and lynxes over twenty years, with an error that is lognormal."""
    loc, scale = np.array([1.0, 0.05, 1.0, 0.05]), np.array([0.5, 0.05, 0.5, 0.05])
    theta = numpyro.sample("theta", dist.TruncatedNormal(loc, scale, low=0.0).to_event(1))
    start = numpyro.sample("z_init", dist.LogNormal(np.log(10), 1).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.LogNormal(-1, 1).expand([2]).to_event(1))
    log_populations = predator_and_prey(theta, start, times)
    numpyro.sample("first", dist.LogNormal(jnp.log(start), sigma), obs=first)
    numpyro.sample("later", dist.LogNormal(log_populations, sigma), obs=later)


def michaelis_menten(
    absorb: jax.Array, half: jax.Array, fastest: jax.Array, dose: float, times: np.ndarray
) -> jax.Array:
    """The concentration Ċ = dose k e^{−k t} − v C / (K + C) from C = 0, in units where the volume
    is one.

    By the implicit midpoint rule, whose equation for the midpoint is quadratic here. It is stable
    however fast the elimination is.
    """

    def step(before, time, size):
        # 2 (x − C) = absorbed − h v x / (K + x) for the midpoint x; the dose is integrated exactly.
        absorbed = dose * jnp.exp(-absorb * time) * -jnp.expm1(-absorb * size)
        gain = before + absorbed / 2
        b = half + size * fastest / 2 - gain
        root = jnp.sqrt(b**2 + 4 * half * gain)
        # The positive root, without the difference of nearly equal numbers.
        middle = jnp.where(b > 0, 2 * half * gain / (b + root), (root - b) / 2)
        return 2 * middle - before

    start = jnp.zeros_like(absorb)
    return _solve(step, start, times, _STEPS_A_DAY)


def one_compartment(
    times: np.ndarray, concentrations: jax.Array, dose: float, volume: float
) -> None:
    """A drug's concentration in one compartment, absorbed at first order and eliminated after
    Michaelis and Menten.

    The tails of K_m and V_m are so heavy that their variances are infinite: for large K_m only
    V_m / K_m is known, and two Cauchy priors leave a density that falls with the third power.
    """
    absorb = numpyro.sample("k_a", dist.HalfCauchy(1))
    half = numpyro.sample("K_m", dist.HalfCauchy(1))
    fastest = numpyro.sample("V_m", dist.HalfCauchy(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    mean = michaelis_menten(absorb, half, fastest / volume, dose / volume, times)
    # Rounding can leave nothing where nearly all is eliminated; its logarithm must stay finite.
    log_mean = jnp.log(jnp.maximum(mean, 1e-10))
    numpyro.sample("concentrations", dist.LogNormal(log_mean, sigma), obs=concentrations)
