"""idx files: arrays come back as they were written, and whatever is no idx file is said to be
none.
"""

import gzip

import numpy as np
import pytest

import nestedvi as nvi
from nestedvi.paper.bgmm_vae.idx import read_idx
from tests.helpers.idx_files import idx_bytes

ARRAY = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)


@pytest.mark.parametrize("name", ["a.gz", "a"])
def test_what_was_written_is_read(tmp_path, name):
    content = idx_bytes(ARRAY)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    np.testing.assert_array_equal(read_idx(tmp_path / name), ARRAY)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx_bytes(ARRAY)[:-1], "cut short"),
        (idx_bytes(ARRAY) + b"x", "cut short or damaged"),
        (idx_bytes(ARRAY)[:3], "no idx file"),
        (b"\x00\x00\x0d" + idx_bytes(ARRAY)[3:], "no idx file of unsigned bytes"),
        (b"<html>not found</html>", "no idx file"),
    ],
)
def test_damaged_content(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(nvi.errors.DataError, match=message):
        read_idx(path)


def test_damaged_compression_and_missing_file(tmp_path):
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(idx_bytes(ARRAY))[:-12])
    with pytest.raises(nvi.errors.DataError, match="fetch it again"):
        read_idx(path)
    with pytest.raises(nvi.errors.DataError, match="Cannot read"):
        read_idx(tmp_path / "none.gz")
