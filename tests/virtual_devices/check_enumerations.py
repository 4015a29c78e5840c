"""Contracts that tests enumerate on one device, with their particles laid out over two: exact
gradients of every divergence, and unbiased weighted measures.
"""

import pytest

import nestedvi as nvi
from tests.divergences.test_gradients_discrete import *  # noqa: F403
from tests.sampler.test_proper_weighting import *  # noqa: F403

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("x64")]


@pytest.fixture(autouse=True)
def over_two_devices():
    with nvi.devices.on(nvi.devices.mesh(particles=2)):
        assert nvi.devices.num_along("particles") == 2
        yield
