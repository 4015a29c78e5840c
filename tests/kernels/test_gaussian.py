"""Gaussian kernels: the residual network by hand, its start, and what is refused."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nestedvi as nvi
from tests.helpers.moves import residual

NOTHING = nvi.kernels.Context(None, None)


def test_the_density_is_scipys(x64):
    """N(z'; a·z + b, scale²), coordinate by coordinate."""
    slope, shift, scale = np.array([0.7, -1.2]), np.array([0.2, 0.0]), np.array([0.5, 3.0])
    kernel = nvi.kernels.GaussianKernel(*map(jnp.asarray, (slope, shift, np.log(scale))))
    z, z_new = np.array([0.4, -0.9]), np.array([1.0, 2.0])
    np.testing.assert_allclose(
        kernel.log_prob(jnp.asarray(z_new), jnp.asarray(z), NOTHING),
        stats.norm(slope * z + shift, scale).logpdf(z_new).sum(),
        rtol=1e-12,
    )


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
@pytest.mark.parametrize(
    "make",
    [
        lambda: residual(2),
        lambda: nvi.kernels.GaussianKernel(jnp.ones(2), jnp.zeros(2), jnp.zeros(2)),
    ],
)
def test_particles_of_the_wrong_shape_are_refused(make, shape, key):
    """Broadcasting must not hide that a kernel was built for another dimension."""
    with pytest.raises(ValueError, match=r"shape \(2,\); got shape"):
        make().sample(key, jnp.zeros(shape), NOTHING)
    with pytest.raises(ValueError, match=r"shape \(2,\); got shape"):
        make().log_prob(jnp.zeros(2), jnp.zeros(shape), NOTHING)


@pytest.mark.parametrize(("dim", "hidden"), [(0, 5), (2, 0)])
def test_a_residual_kernel_needs_a_size(dim, hidden, key):
    with pytest.raises(ValueError, match="dim ≥ 1 and hidden ≥ 1"):
        nvi.ResidualGaussian(dim, hidden, key=key)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_a_residual_kernel_starts_as_the_identity_plus_noise(scale, key, x64):
    z = jnp.array([3.0, -2.0])
    loc, start = nvi.ResidualGaussian(2, key=key, scale=scale).params(z)
    np.testing.assert_allclose(loc, z)
    np.testing.assert_allclose(start, scale, rtol=1e-6)


def test_the_residual_network_by_hand(x64):
    """μ = z + W_μ h + b_μ, σ = softplus(W_σ h + b_σ), h = relu(W_h z + b_h), with plain loops."""
    kernel, z = residual(2), np.array([0.4, -0.9])
    w, b, v, c = (
        np.asarray(x)
        for x in (kernel.hidden_weight, kernel.hidden_bias, kernel.out_weight, kernel.out_bias)
    )
    h = [max(0.0, sum(z[i] * w[i, j] for i in range(2)) + b[j]) for j in range(7)]
    out = [sum(h[j] * v[j, m] for j in range(7)) + c[m] for m in range(4)]
    loc, scale = kernel.params(jnp.asarray(z))
    np.testing.assert_allclose(loc, [z[0] + out[0], z[1] + out[1]], rtol=1e-12)
    np.testing.assert_allclose(
        scale, [math.log1p(math.exp(out[2])), math.log1p(math.exp(out[3]))], rtol=1e-12
    )


@pytest.mark.parametrize("dim, hidden", [(1, 5), (2, 50), (3, 7)])
def test_hidden_units_of_a_residual_gaussian_look_everywhere(dim, hidden, key):
    """Frames of orthogonal unit vectors and their opposites: over whole frames the directions' mean
    is zero and their second moment that of the sphere."""
    weight = np.asarray(nvi.ResidualGaussian(dim, hidden, key=key).hidden_weight)
    assert weight.shape == (dim, hidden)
    np.testing.assert_allclose(np.linalg.norm(weight, axis=0), 3**-0.5, rtol=1e-5)
    whole = weight[:, : hidden - hidden % (2 * dim)] * 3**0.5
    np.testing.assert_allclose(whole.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(whole @ whole.T / whole.shape[1], np.eye(dim) / dim, atol=1e-5)
