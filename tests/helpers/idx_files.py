"""Small files of the MNIST family, made on the spot."""

import gzip
import hashlib

import numpy as np

from nestedvi.paper.bgmm_vae.mnist import ImageSet

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def idx_bytes(array):
    """An idx file's content, before compression."""
    return (
        bytes([0, 0, 8, array.ndim])
        + b"".join(n.to_bytes(4, "big") for n in array.shape)
        + array.tobytes()
    )


def write_files(folder, seed=0):
    """Four small files, and the arrays in them."""
    rng = np.random.default_rng(seed)
    arrays = [
        rng.integers(0, 256, (6, 3, 2), dtype=np.uint8),
        rng.integers(0, 10, 6, dtype=np.uint8),
        rng.integers(0, 256, (4, 3, 2), dtype=np.uint8),
        rng.integers(0, 10, 4, dtype=np.uint8),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(FILES, arrays, strict=True):
        (folder / name).write_bytes(gzip.compress(idx_bytes(array), mtime=0))
    return arrays


def described(folder, mirrors=()):
    """A data set that consists of the files in a folder."""
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    return ImageSet("Tiny", ("tiny",), tuple(mirrors), digests, tuple("0123456789"))
