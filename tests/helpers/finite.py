"""Finite worlds that several tests enumerate: densities and hidden Markov chains given by
tables.
"""

import jax
import jax.numpy as jnp

import nestedvi as nvi


class Table(nvi.AbstractSampleable):
    """γ(z) as a table of logarithms, unnormalised; for a table of several axes z is an array of
    indices.
    """

    log_table: jax.Array

    def log_gamma(self, z):
        return self.log_table[z] if self.log_table.ndim == 1 else self.log_table[tuple(z)]

    @property
    def log_Z(self):
        return jax.nn.logsumexp(self.log_table)

    @property
    def reparameterised(self):
        return False

    def sample(self, key):
        flat = jax.random.categorical(key, self.log_table.ravel())
        return (
            flat
            if self.log_table.ndim == 1
            else jnp.stack(jnp.unravel_index(flat, self.log_table.shape))
        )


class TableChain(nvi.AbstractStateSpaceModel):
    """A hidden Markov chain with tables for everything."""

    log_start: jax.Array
    log_step: jax.Array
    log_emit: jax.Array

    def log_initial(self, z):
        return self.log_start[z]

    def log_transition(self, z, z_prev):
        return self.log_step[z_prev, z]

    def log_observation(self, x, z):
        return self.log_emit[z, x]
