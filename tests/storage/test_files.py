"""Result files: whole or not at all, legal JSON, and a record of what made them."""

import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestedvi.errors import CheckpointError
from nestedvi.storage.files import (
    check_writable,
    output_folder,
    provenance,
    reserve,
    to_json,
    write_atomic,
    write_json,
    write_text,
)


def test_a_full_disk_is_reported_and_nothing_stays(tmp_path):
    reserve(tmp_path, 1000)
    with pytest.raises(OSError):
        reserve(tmp_path, 2**62)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_for_checkpoints_is_tried(tmp_path):
    check_writable(tmp_path / "new" / "one")
    assert list((tmp_path / "new" / "one").iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"Cannot write checkpoints to .*file.*Choose"):
        check_writable(tmp_path / "file")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "result.txt"
    path.write_text("old")

    def half(temporary):
        assert temporary.parent == tmp_path and temporary.suffix == ".txt"
        temporary.write_text("ne")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_atomic(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_replaces_the_file_in_one_go(tmp_path):
    path = tmp_path / "result.txt"
    path.write_text("old")
    seen = []

    def write(temporary):
        temporary.write_text("new")
        seen.append(path.read_text())

    write_atomic(path, write)
    assert seen == ["old"] and path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_text_is_utf_8(tmp_path):
    write_text(tmp_path / "a.md", "log Ẑ")
    assert (tmp_path / "a.md").read_bytes() == "log Ẑ".encode()


def test_what_is_not_finite_becomes_null():
    content = {
        "a": float("nan"),
        "b": [1.0, -np.inf],
        "c": np.array([np.inf, 2.0]),
        "d": jnp.nan,
        "e": np.float32("nan"),
        3: (1,),
    }
    assert json.loads(to_json(content)) == {
        "a": None,
        "b": [1.0, None],
        "c": [None, 2.0],
        "d": None,
        "e": None,
        "3": [1],
    }


def test_arrays_become_lists_and_numbers_stay_numbers():
    content = {
        "x": jnp.arange(3),
        "y": np.eye(2),
        "z": np.float64(0.5),
        "n": np.int32(4),
        "ok": True,
        "none": None,
        "t": "β",
    }
    plain = json.loads(to_json(content))
    assert plain == {
        "x": [0, 1, 2],
        "y": [[1, 0], [0, 1]],
        "z": 0.5,
        "n": 4,
        "ok": True,
        "none": None,
        "t": "β",
    }
    assert type(plain["n"]) is int and plain["ok"] is True


def test_json_files_end_in_a_newline(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1})
    assert (tmp_path / "a.json").read_text() == '{\n  "x": 1\n}\n'


def test_output_folders_are_made_and_tried(tmp_path):
    folder = output_folder(tmp_path / "a" / "b")
    assert folder.is_dir() and not list(folder.iterdir())
    (tmp_path / "file").write_text("in the way")
    for wrong in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"Cannot write to the output folder .*file.* --out"):
            output_folder(wrong)


def strings(content):
    if isinstance(content, dict):
        return [s for value in content.values() for s in strings(value)]
    return [content] if isinstance(content, str) else []


def test_provenance_says_what_made_a_result_and_not_where(monkeypatch, tmp_path):
    """Command, versions, device, seed; no path of this machine, even if the user typed one."""
    arguments = [
        "demo",
        "--out",
        str(tmp_path / "mine"),
        f"--log={tmp_path}/x.txt",
        "--steps",
        "5",
        "relative/path",
    ]
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bin" / "nestedvi"), *arguments])
    made = provenance(17)
    assert made["command"] == "nestedvi demo --out mine --log=x.txt --steps 5 relative/path"
    assert made["seed"] == 17 and made["device"].startswith(jax.default_backend())
    assert {"python", "jax", "jaxlib", "equinox", "optax", "numpyro", "numpy"} <= made[
        "versions"
    ].keys()
    for text in strings(made):
        assert (
            str(tmp_path) not in text
            and os.path.expanduser("~") not in text
            and not text.startswith("/")
        )
    json.loads(to_json(made))
