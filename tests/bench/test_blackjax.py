"""BlackJAX's answer on a Gaussian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.bench.blackjax import answer_blackjax
from nestedvi.densities.base import Density
from nestedvi.inference.answer import Request


@pytest.mark.slow
def test_log_Z_of_a_gaussian():
    pytest.importorskip("blackjax")
    answer = answer_blackjax(
        jax.random.key(0), Request(Density(lambda z: -0.5 * jnp.sum((z - 1) ** 2)), 2, 1000)
    )
    assert abs(answer.log_Z - np.log(2 * np.pi)) < 0.2 and answer.cost.sampling > 0
    assert np.all(np.abs(np.asarray(answer.z).mean(axis=0) - 1) < 0.2)
