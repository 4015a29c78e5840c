"""BlackJAX kernels as moves (needs the extra `nestedvi[mcmc]`). It refuses to tune them."""

from collections.abc import Callable
from typing import Any

import jax

from nestedvi._types import Key, Particle, Scalar
from nestedvi.kernels.mcmc import Invariant

__all__ = ["blackjax_move"]


def blackjax_move(algorithm: Any, steps: int = 1, **parameters: Any) -> Invariant:
    """`steps` iterations of a BlackJAX algorithm, given γ_k at each level.

    ```python
    metric = jnp.ones(2)
    nvi.kernels.blackjax_move(
        blackjax.hmc, step_size=0.3, inverse_mass_matrix=metric, num_integration_steps=10
    )
    ```
    """

    def step(key: Key, z: Particle, log_gamma: Callable[[Particle], Scalar]) -> Particle:
        sampler = algorithm(log_gamma, **parameters)
        key_init, key_steps = jax.random.split(key)
        # Some algorithms (ghmc, mclmc) draw part of their state at the start.
        try:
            state = sampler.init(z)
        except TypeError:
            state = sampler.init(z, key_init)

        def body(state, key_step):
            return sampler.step(key_step, state)[0], None

        return jax.lax.scan(body, state, jax.random.split(key_steps, steps))[0].position

    return Invariant(step)
