"""`sample` on one device and on eight: the same particles, for every kind of answer."""

import warnings

import jax
import numpy as np
import pytest

import nestedvi as nvi
from tests.helpers.three_modes import three_modes

KEY = jax.random.key(7)


def answer(devices, model=three_modes, **options):
    with warnings.catch_warnings():
        # Few particles: what a diagnosis says of them is not the question here.
        warnings.simplefilter("ignore", nvi.NestedviWarning)
        return nvi.sample(KEY, model, dim=2, num_particles=400, devices=devices, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"model": lambda z: -0.5 * (z @ z)},
        {"num_levels": 4},
        {"method": "smc"},
        {"method": "nvir-star", "num_steps": 60, "num_levels": 3},
    ],
    ids=["importance sampling", "flexible", "smc", "a trained row"],
)
def test_the_same_particles_on_eight_devices(options):
    with jax.enable_x64(True):
        alone, together = answer(1, **options), answer(None, **options)
        np.testing.assert_allclose(together.log_Z, alone.log_Z, rtol=1e-6)
        np.testing.assert_allclose(
            jax.tree.leaves(together.samples)[0],
            jax.tree.leaves(alone.samples)[0],
            rtol=1e-5,
            atol=1e-6,
        )
