"""Samplers written down as programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.sampler.nested import run
from tests.helpers.moves import gaussian_pair


def test_composed_program_is_the_sampler_built_by_hand(key, x64):
    kernels = [gaussian_pair(jax.random.key(i)) for i in range(2)]
    q = nvi.DiagonalNormal(0.0, 2.0)
    targets = [
        nvi.DiagonalNormal(0.0, 1.5),
        nvi.DiagonalNormal(0.5, 1.0),
        nvi.DiagonalNormal(1.0, 0.7),
    ]
    program = nvi.compose(
        nvi.propose(q, targets[0]),
        nvi.propose(kernels[0], targets[1]),
        nvi.resample("stratified", 0.9),
        nvi.propose((kernels[1].forward, kernels[1].reverse), targets[2], learn_target=True),
    )
    rules = (nvi.Resampling(when="never"), nvi.Resampling("stratified", 0.9))
    by_hand = nvi.NestedSampler(
        q, nvi.paths.DensitySequence(targets, [False, False, True]), tuple(kernels), rules
    )
    assert program.path.learn == (False, False, True)
    a, b = (run(key, s, 8).particles.log_w for s in (program, by_hand))
    np.testing.assert_array_equal(a, b)


def test_wrong_programs():
    q, pair = nvi.DiagonalNormal(0.0, 1.0), gaussian_pair(jax.random.key(0))
    start, move = nvi.propose(q, q), nvi.propose(pair, q)
    with pytest.raises(ValueError, match="starts with propose"):
        nvi.compose()
    with pytest.raises(ValueError, match="starts with propose"):
        nvi.compose(move, move)
    with pytest.raises(ValueError, match="Two resample"):
        nvi.compose(start, nvi.resample(), nvi.resample(), move)
    with pytest.raises(ValueError, match="ends with a move"):
        nvi.compose(start, move, nvi.resample())
    with pytest.raises(ValueError, match="Only the first stage"):
        nvi.compose(start, start)
    with pytest.raises(TypeError, match="reverse kernel"):
        nvi.propose(pair.forward, q)
    with pytest.raises(ValueError, match="at least 2 levels"):
        nvi.compose(start)


def test_an_extension_appends_to_the_particle(key):
    """A kernel of the last entry alone makes a particle of two."""
    kernel = nvi.kernels.GaussianKernel(jnp.array(0.5), jnp.array(0.1), jnp.array(0.0))
    program = nvi.compose(
        nvi.propose(nvi.DiagonalNormal(0.0, 1.0), nvi.DiagonalNormal(0.0, 1.0)),
        nvi.extend(kernel, nvi.DiagonalNormal(jnp.zeros(2), 1.0)),
    )
    assert run(key, program, 4).particles.z.shape == (4, 2)
