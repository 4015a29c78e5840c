"""BlackJAX's adaptive tempered SMC as a way of answering, to compare ours with. BlackJAX is an
extra: it is imported when a request is answered. It refuses to tune anything of its own.
"""

import jax
import jax.numpy as jnp
import numpy as np

from nestedvi._types import Key
from nestedvi.densities.mixtures import ScaleMixture
from nestedvi.inference.answer import Answer, Cost, Request

__all__ = ["answer_blackjax"]

# BlackJAX tunes the metric from the particles as we do, but no step size: this one, in units of
# their spread, suits most targets.
_STEP, _MOVES, _ESS, _LEAPS, _MOST_LEVELS = 0.3, 3, 0.8, 10, 200


def answer_blackjax(key: Key, request: Request) -> Answer:
    """BlackJAX's adaptive tempered SMC from the same base as ours, with Hamiltonian moves in a
    metric from the particles.
    """
    import blackjax
    from blackjax.smc import resampling
    from blackjax.smc.tuning.from_particles import particles_covariance_matrix

    dim, num_particles = request.dim, request.num_particles
    base = ScaleMixture(dim)

    def covariance(z):
        return particles_covariance_matrix(z).reshape(dim, dim) + 1e-6 * jnp.eye(dim)

    def shared(z):
        return {"inverse_mass_matrix": covariance(z)[None]}

    kernel = blackjax.hmc.build_kernel()

    def move(key, state, log_density, inverse_mass_matrix):
        return kernel(key, state, log_density, _STEP, inverse_mass_matrix, _LEAPS)

    key_start, key_run = jax.random.split(key)
    start = jax.vmap(base.sample)(jax.random.split(key_start, num_particles))
    algorithm = blackjax.inner_kernel_tuning(
        smc_algorithm=blackjax.adaptive_tempered_smc,
        logprior_fn=base.log_gamma,
        loglikelihood_fn=lambda z: request.density.log_gamma(z) - base.log_gamma(z),
        mcmc_step_fn=move,
        mcmc_init_fn=blackjax.hmc.init,
        resampling_fn=resampling.systematic,
        mcmc_parameter_update_fn=lambda key, state, info: shared(state.particles),
        initial_parameter_value=shared(start),
        target_ess=_ESS,
        num_mcmc_steps=_MOVES,
    )
    step = jax.jit(algorithm.step)
    state, log_Z, levels = algorithm.init(start), 0.0, 0
    while float(state.sampler_state.tempering_param) < 1 and levels < _MOST_LEVELS:
        key_run, key_step = jax.random.split(key_run)
        state, info = step(key_step, state)
        log_Z, levels = log_Z + float(info.log_likelihood_increment), levels + 1
    log_w = jnp.log(jnp.maximum(state.sampler_state.weights, 1e-30)) + log_Z + np.log(num_particles)
    # The likelihood at every temperature; its tempering takes one value more.
    cost = Cost(0.0, levels * _MOVES * (_LEAPS + 1), 2.0 * levels)
    return Answer(state.sampler_state.particles, log_w, log_Z, float("nan"), cost=cost)
