"""KL between neighbouring targets against the closed form for Gaussians."""

import jax.numpy as jnp
import numpy as np

import nestedvi as nvi
from nestedvi.paper.annealing.quadrature import neighbour_kl


def test_neighbours_of_a_gaussian_path(x64):
    """Annealing N(0, 4) to N(0, 1) in two dimensions stays Gaussian: precision is linear in β."""
    path = nvi.Annealing(
        nvi.DiagonalNormal(jnp.zeros(2), 2.0),
        nvi.DiagonalNormal(jnp.zeros(2), 1.0),
        nvi.LinearSchedule(4),
    )
    variance = 1 / np.linspace(1 / 4, 1, 4)
    ratio = variance[:-1] / variance[1:]
    exact = ratio - 1 - np.log(ratio)
    np.testing.assert_allclose(neighbour_kl(path, limit=16.0), exact, rtol=1e-8)
