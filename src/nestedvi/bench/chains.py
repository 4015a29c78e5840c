"""log Z of a log density from chains of NumPyro's NUTS, by bridge sampling. It says what speaks
against the chains, and judges nothing.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC, NUTS

from nestedvi._types import Key
from nestedvi.bench.bridge import bridge_sampling

__all__ = ["bridge_log_Z"]

# Places of each kind that a chain's start is the best of.
_PLACES = 200


def bridge_log_Z(
    seed: int, log_gamma: Callable[[jax.Array], jax.Array], start: np.ndarray, draws: int
) -> dict[str, Any]:
    """log Z of a log density of vectors by NUTS and bridge sampling, with what speaks against the
    chains.
    """
    # Coefficients of a regression may depend on each other, and their scales differ.
    kernel = NUTS(potential_fn=lambda z: -log_gamma(z), dense_mass=True, target_accept_prob=0.9)
    mcmc = MCMC(
        kernel,
        num_warmup=min(2000, draws),
        num_samples=draws,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    keys = jax.random.split(jax.random.key(seed))
    batched = jax.jit(jax.vmap(log_gamma))
    mcmc.run(keys[1], init_params=_starts(keys[0], batched, start), extra_fields=("diverging",))
    chains = np.asarray(mcmc.get_samples(group_by_chain=True))
    bridge = bridge_sampling(np.random.default_rng(seed), batched, chains)
    half = draws // 2
    halves = np.concatenate([chains[:, :half], chains[:, -half:]])
    return {
        **bridge._asdict(),
        "diverging": int(mcmc.get_extra_fields()["diverging"].sum()),
        "rhat": float(np.max(_rhat(halves))),
    }


def _starts(key: Key, log_gamma: Callable[[jax.Array], jax.Array], start: np.ndarray) -> jax.Array:
    """A place for each of four chains, the densest of some hundred of its own: near the start, and
    scattered over (−2, 2). From where a density is astronomically small a chain may never return.
    """
    near, wide = jax.random.split(key)
    shape = (4, _PLACES, len(start))
    places = jnp.concatenate(
        [
            jnp.asarray(start) + 0.1 * jax.random.normal(near, shape),
            jax.random.uniform(wide, shape, minval=-2.0, maxval=2.0),
        ],
        axis=1,
    )
    values = jnp.nan_to_num(log_gamma(places.reshape(-1, len(start))), nan=-jnp.inf)
    best = jnp.argmax(values.reshape(4, -1), axis=1)
    return places[jnp.arange(4), best]


def _rhat(chains: np.ndarray) -> np.ndarray:
    """R̂ of every coordinate, from chains cut in halves."""
    num = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt((num - 1) / num + between / within)
