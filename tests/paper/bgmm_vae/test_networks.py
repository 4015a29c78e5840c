"""The image networks: layers written as matrix products are the convolutions that they stand
for.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.paper.bgmm_vae.config import BgmmVaeConfig
from nestedvi.paper.bgmm_vae.networks import Dense, ImageDecoder, ImageEncoder, StridedConv, UpConv

pytestmark = pytest.mark.usefixtures("x64")

LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolution(x, kernel, strides, padding, dilation=(1, 1)):
    return jax.lax.conv_general_dilated(
        x[None], kernel, strides, padding, lhs_dilation=dilation, dimension_numbers=LAYOUT
    )[0]


def test_a_strided_layer_is_a_convolution(key):
    """4 × 4, stride 2, padding 1; the product's rows are (block of the window, pixel of the block,
    channel).
    """
    layer, x = StridedConv(3, 5, key=key), jax.random.normal(key, (8, 6, 3))
    kernel = (
        layer.product.weight.reshape(2, 2, 2, 2, 3, 5)
        .transpose(0, 2, 1, 3, 4, 5)
        .reshape(4, 4, 3, 5)
    )
    expected = convolution(x, kernel, (2, 2), ((1, 1), (1, 1))) + layer.product.bias
    np.testing.assert_allclose(layer(x), expected, atol=1e-12)


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 5), (9, 2)])
def test_an_up_layer_is_the_transposed_convolution(key, inputs, outputs):
    """Whichever of windows and products comes first: a 4 × 4 convolution of the input spread out by
    2.
    """
    layer, x = UpConv(inputs, outputs, key=key), jax.random.normal(key, (4, 3, inputs))
    # Output 2v − 1 + a sees input v − 1 + k through tap 2k + 1 − a of the spread-out convolution.
    weight = layer.weight.reshape(2, 2, inputs, 2, 2, outputs)
    kernel = np.zeros((4, 4, inputs, outputs))
    for (i, j, a, b), _ in np.ndenumerate(np.zeros((2, 2, 2, 2))):
        kernel[2 * i + 1 - a, 2 * j + 1 - b] = weight[i, j, :, a, b]
    expected = (
        convolution(x, jnp.asarray(kernel), (1, 1), ((2, 2), (2, 2)), dilation=(2, 2)) + layer.bias
    )
    assert layer(x).shape == (8, 6, outputs)
    np.testing.assert_allclose(layer(x), expected, atol=1e-12)


def test_the_papers_sizes(key):
    """28 × 28 pixels: four convolutions down to 2 × 2, 256 units up again, one channel at the
    end.
    """
    channels = BgmmVaeConfig().channels
    encoder = ImageEncoder(28, 20, channels, key=key, half=False)
    decoder = ImageDecoder(28, 10, (channels[-1],) * 4, key=key, half=False)
    assert [conv.product.weight.shape[1] for conv in encoder.convs] == [32, 64, 64, 64]
    assert encoder.head.weight.shape == (256, 20) and decoder.dense.weight.shape == (10, 256)
    assert [conv.bias.shape[0] for conv in decoder.convs] == [64, 64, 64, 1]
    assert jax.eval_shape(encoder, jnp.zeros((28, 28))).shape == (20,)
    assert jax.eval_shape(decoder, jnp.zeros(10)).shape == (28, 28)


@pytest.mark.slow
def test_every_pixel_and_every_code_matters(key):
    """No pixel is lost to padding or cutting: each moves the code, and each is moved by it."""
    encoder, decoder = (
        ImageEncoder(6, 4, (2, 3), key=key, half=False),
        ImageDecoder(6, 4, (3, 3), key=key, half=False),
    )
    by_pixel = jax.jacrev(encoder)(jax.random.uniform(key, (6, 6)))
    by_code = jax.jacfwd(decoder)(jnp.ones(4))
    assert (jnp.abs(by_pixel).max(axis=0) > 0).all() and (jnp.abs(by_code).max(axis=2) > 0).all()


def test_replicas_side_by_side(key):
    """A stack of networks under vmap gives what each gives alone."""
    nets = eqx.filter_vmap(lambda k: ImageDecoder(4, 2, (3, 3), key=k, half=False))(
        jax.random.split(key, 3)
    )
    z = jax.random.normal(key, (3, 2))
    together = eqx.filter_jit(eqx.filter_vmap(lambda net, z: net(z)))(nets, z)
    for i in range(3):
        one = jax.tree.map(lambda a, i=i: a[i] if eqx.is_array(a) else a, nets)
        np.testing.assert_allclose(together[i], eqx.filter_jit(one)(z[i]), atol=1e-12)


def test_dense_layers_start_within_bounds(key):
    layer = Dense(100, 30, key=key)
    assert jnp.abs(layer.weight).max() <= 0.1 and jnp.abs(layer.weight).max() > 0.09
    np.testing.assert_allclose(layer(jnp.zeros(100)), layer.bias)


def test_sizes_that_cannot_be_padded_evenly(key):
    with pytest.raises(ValueError, match="padded evenly"):
        ImageEncoder(27, 2, (2, 2), key=key, half=False)


def test_half_precision_stays_close_and_returns_full(key):
    """Computing in bfloat16 (eight bits) moves results by about a hundredth of their size; what
    comes out is not rounded.
    """
    full, half = (ImageDecoder(8, 3, (4, 4), key=key, half=flag) for flag in (False, True))
    z = jax.random.normal(key, (3,))
    exact, rounded = eqx.filter_jit(full)(z), eqx.filter_jit(half)(z)
    assert rounded.dtype == exact.dtype == z.dtype
    assert 0 < jnp.abs(rounded - exact).max() < 0.03 * jnp.abs(exact).max()
    x = jax.random.uniform(key, (8, 8))
    exact, rounded = (
        eqx.filter_jit(ImageEncoder(8, 6, (4, 4), key=key, half=flag))(x) for flag in (False, True)
    )
    assert rounded.dtype == exact.dtype
    assert 0 < jnp.abs(rounded - exact).max() < 0.03 * jnp.abs(exact).max()
    grads = eqx.filter_jit(eqx.filter_grad(lambda network: jnp.sum(network(z) ** 2)))(half)
    assert all(g.dtype == z.dtype and jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads))
