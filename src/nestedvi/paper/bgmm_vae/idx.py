"""The idx format of the MNIST family: a header of big-endian numbers, then unsigned bytes; gzipped
or not. It only reads.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from nestedvi.errors import DataError

__all__ = ["read_idx"]

_UNSIGNED_BYTES = 0x08


def read_idx(path: Path) -> np.ndarray:
    """The array in an idx file of unsigned bytes."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"Cannot read {path}: {error}. Delete it and fetch it again.") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTES:
        raise DataError(
            f"{path} is no idx file of unsigned bytes (it starts with {content[:4].hex(' ')!r})."
            " Fetch it again."
        )
    header = 4 + 4 * content[3]
    shape = tuple(int(n) for n in np.frombuffer(content[4:header], ">u4"))
    if len(content) != header + math.prod(shape):
        raise DataError(
            f"{path} is cut short or damaged: its header promises {shape}, that is"
            f" {math.prod(shape)} bytes, and {max(len(content) - header, 0)} follow. Fetch it"
            " again."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
