"""Networks for small grey images: strided convolutions down to a vector, up-convolutions back to
logits. No density lives here.

Both kinds of layer are written as a matrix product over 2 × 2 windows. A 4 × 4 convolution of
stride 2 is a 2 × 2 convolution of 2 × 2 blocks, and its transpose computes 2 × 2 blocks of output
from 2 × 2 windows of input. Under vmap over replicas such a product stays a batched matrix product,
where a convolution would turn into a grouped one, which accelerators run slowly.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestedvi._types import Key

__all__ = ["Dense", "ImageDecoder", "ImageEncoder", "StridedConv", "UpConv"]

Image = Float[Array, "height width channels"]


def _uniform(key: Key, shape: tuple[int, ...], fan_in: int) -> Array:
    bound = 1.0 / np.sqrt(fan_in)
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Dense(eqx.Module):
    """x ↦ x W + b on the last axis; weights start uniform in ±1/√fan-in."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: Key):
        key_weight, key_bias = jax.random.split(key)
        self.weight = _uniform(key_weight, (inputs, outputs), inputs)
        self.bias = _uniform(key_bias, (outputs,), inputs)

    def __call__(self, x: Float[Array, "*rest inputs"]) -> Float[Array, "*rest outputs"]:
        # In the precision of what comes in: a network decides on it once, at its entrance.
        return x @ self.weight.astype(x.dtype) + self.bias.astype(x.dtype)


def _windows(x: Image) -> Image:
    """All 2 × 2 windows, their four pixels side by side: (h, w, c) → (h − 1, w − 1, 4c)."""
    return jnp.concatenate([x[:-1, :-1], x[:-1, 1:], x[1:, :-1], x[1:, 1:]], axis=-1)


def _pad(x: Image, size: int) -> Image:
    return jnp.pad(x, ((size, size), (size, size), (0, 0)))


class StridedConv(eqx.Module):
    """A 4 × 4 convolution of stride 2 and padding 1: (h, w, inputs) → (h/2, w/2, outputs), h and w
    even.
    """

    product: Dense

    def __init__(self, inputs: int, outputs: int, *, key: Key):
        self.product = Dense(16 * inputs, outputs, key=key)

    def __call__(self, x: Image) -> Image:
        height, width, channels = x.shape
        blocks = (
            _pad(x, 1)
            .reshape(height // 2 + 1, 2, width // 2 + 1, 2, channels)
            .transpose(0, 2, 1, 3, 4)
        )
        return self.product(_windows(blocks.reshape(height // 2 + 1, width // 2 + 1, 4 * channels)))


class UpConv(eqx.Module):
    """The transpose of such a convolution: (h, w, inputs) → (2h, 2w, outputs)."""

    weight: Float[Array, "4 inputs 4*outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: Key):
        key_weight, key_bias = jax.random.split(key)
        # Every output pixel sees four input pixels.
        self.weight = _uniform(key_weight, (4, inputs, 4 * outputs), 4 * inputs)
        self.bias = _uniform(key_bias, (outputs,), 4 * inputs)

    def __call__(self, x: Image) -> Image:
        height, width, inputs = x.shape
        outputs, weight = self.bias.shape[0], self.weight.astype(x.dtype)
        # The window that starts at pixel v − 1 holds all that outputs 2v − 1 and 2v depend on.
        if inputs > 4 * outputs:
            # Windows of the products are smaller than products of the windows.
            parts = _pad(jnp.einsum("hwi,kio->hwko", x, weight).reshape(height, width, -1), 1)
            parts = parts.reshape(height + 2, width + 2, 4, 4 * outputs)
            blocks = parts[:-1, :-1, 0] + parts[:-1, 1:, 1] + parts[1:, :-1, 2] + parts[1:, 1:, 3]
        else:
            blocks = _windows(_pad(x, 1)) @ weight.reshape(4 * inputs, 4 * outputs)
        pixels = blocks.reshape(height + 1, width + 1, 2, 2, outputs).transpose(0, 2, 1, 3, 4)
        return pixels.reshape(2 * height + 2, 2 * width + 2, outputs)[
            1:-1, 1:-1
        ] + self.bias.astype(x.dtype)


def _padding(size: int, layers: int) -> tuple[int, int]:
    """How much to pad on each side so that every layer can halve the image, and its size at the
    bottom.
    """
    step = 2**layers
    bottom = -(-size // step)
    spare = bottom * step - size
    if spare % 2:
        raise ValueError(
            f"Images of size {size} cannot be padded evenly to a multiple of {step}; use an even"
            " size or fewer layers."
        )
    return spare // 2, bottom


def _enter(x: Array, half: bool) -> Array:
    """What a network computes with: half the bytes of every activation, or all of them."""
    return x.astype(jnp.bfloat16) if half else x


class ImageEncoder(eqx.Module):
    """Convolutions with SiLU, then a dense layer: an image in [0, 1]^{size × size} → `outputs`
    numbers.

    Images are padded to a multiple of 2^layers: 28 → 32, and four layers lead to 2 × 2. `half`
    computes in bfloat16; parameters and results stay as they are.
    """

    convs: tuple[StridedConv, ...]
    head: Dense
    padding: int = eqx.field(static=True)
    half: bool = eqx.field(static=True)

    def __init__(self, size: int, outputs: int, channels: Sequence[int], *, key: Key, half: bool):
        self.half = half
        keys = jax.random.split(key, len(channels) + 1)
        self.padding, bottom = _padding(size, len(channels))
        pairs = zip(keys[:-1], (1, *channels[:-1]), channels, strict=True)
        self.convs = tuple(StridedConv(a, b, key=k) for k, a, b in pairs)
        self.head = Dense(channels[-1] * bottom**2, outputs, key=keys[-1])

    def __call__(self, x: Float[Array, "size size"]) -> Float[Array, " outputs"]:
        h = _pad(_enter(x, self.half)[:, :, None], self.padding)
        for conv in self.convs:
            h = jax.nn.silu(conv(h))
        return self.head(h.ravel()).astype(self.head.weight.dtype)


class ImageDecoder(eqx.Module):
    """A dense layer, then up-convolutions with SiLU between them: `inputs` numbers → an image of
    logits.

    `channels` are those that go into each up-convolution; the last one ends in one channel. The
    dense layer has what they need: for 28 × 28 pixels and four layers, 64 channels of 2 × 2, the
    256 units of the paper. What the encoder pads is cut off here. `half` computes in bfloat16, as
    in the encoder.
    """

    dense: Dense
    convs: tuple[UpConv, ...]
    padding: int = eqx.field(static=True)
    bottom: int = eqx.field(static=True)
    half: bool = eqx.field(static=True)

    def __init__(self, size: int, inputs: int, channels: Sequence[int], *, key: Key, half: bool):
        self.half = half
        keys = jax.random.split(key, len(channels) + 1)
        self.padding, self.bottom = _padding(size, len(channels))
        self.dense = Dense(inputs, channels[0] * self.bottom**2, key=keys[0])
        pairs = zip(keys[1:], channels, (*channels[1:], 1), strict=True)
        self.convs = tuple(UpConv(a, b, key=k) for k, a, b in pairs)

    def __call__(self, z: Float[Array, " inputs"]) -> Float[Array, "size size"]:
        h = jax.nn.silu(self.dense(_enter(z, self.half))).reshape(self.bottom, self.bottom, -1)
        for conv in self.convs[:-1]:
            h = jax.nn.silu(conv(h))
        image = self.convs[-1](h)[:, :, 0].astype(self.dense.weight.dtype)
        cut = self.padding
        return image[cut : image.shape[0] - cut, cut : image.shape[1] - cut]
