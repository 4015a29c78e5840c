"""Cells of a grid: computed once, read back, and never half there."""

import json
from dataclasses import dataclass

import jax
import numpy as np
import pytest

import nestedvi.grid.cells as cells
from nestedvi.errors import CheckpointError, NestedviWarning
from nestedvi.grid.cells import cell_key, fingerprint, public, recorded, run_cached

CONTENT = {"name": "one", "steps": 3, "shown": (0, 1)}


class Compute:
    """Work that leaves a checkpoint, and counts how often it was done."""

    def __init__(self, value=1.5):
        self.value, self.folders = value, []

    def __call__(self, work):
        self.folders.append(work)
        work.mkdir()
        (work / "checkpoint").write_text("half of it")
        return {"mean": np.float32(self.value), "missing": float("nan")}, {
            "log_Z": np.array([self.value, -1.0])
        }


def failing(work):
    work.mkdir()
    (work / "checkpoint").write_text("half of it")
    raise KeyboardInterrupt


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_cell_is_computed_once_and_read_back(tmp_path):
    """The second call gives the same row and arrays without work; both files are there and the work
    folder is not.
    """
    compute = Compute()
    row, arrays = run_cached("one", CONTENT, tmp_path, compute)
    again, same = run_cached("one", CONTENT, tmp_path, compute)
    assert len(compute.folders) == 1 and names(tmp_path) == ["one.json", "one.npz"]
    assert row["mean"] == again["mean"] == 1.5 and again["missing"] is None
    assert row["fingerprint"] == again["fingerprint"] == fingerprint(CONTENT) and again["device"]
    assert again["cell"] == {**CONTENT, "shown": [0, 1]} and public(again).keys().isdisjoint(
        ("cell", "digest")
    )
    assert list(same) == ["log_Z"]
    np.testing.assert_array_equal(same["log_Z"], arrays["log_Z"])


def test_another_content_is_computed_anew(tmp_path):
    """A changed configuration replaces the files, works in a folder of its own, and the old one is
    not believed any more.
    """
    first, second, third = Compute(), Compute(2.5), Compute(3.5)
    run_cached("one", CONTENT, tmp_path, first)
    row, arrays = run_cached("one", {**CONTENT, "steps": 4}, tmp_path, second)
    assert row["mean"] == 2.5 and arrays["log_Z"][0] == 2.5 and first.folders != second.folders
    assert json.loads((tmp_path / "one.json").read_text())["cell"]["steps"] == 4
    assert run_cached("one", CONTENT, tmp_path, third)[0]["mean"] == 3.5
    assert names(tmp_path) == ["one.json", "one.npz"]


@pytest.mark.parametrize("lost", ["one.json", "one.npz"])
def test_half_a_cell_is_no_cell(tmp_path, lost):
    """With one of its files gone a cell is computed again."""
    run_cached("one", CONTENT, tmp_path, Compute())
    (tmp_path / lost).unlink()
    assert run_cached("one", CONTENT, tmp_path, Compute(2.5))[1]["log_Z"][0] == 2.5


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x01
    path.write_bytes(bytes(content))


DAMAGES = {
    "empty json": ("one.json", lambda p: p.write_text("")),
    "cut json": ("one.json", lambda p: p.write_text(p.read_text()[:40])),
    "other json": ("one.json", lambda p: p.write_text("[1]")),
    "another number": ("one.npz", lambda p: _edit(p.with_suffix(".json"), "1.5", "2.5")),
    "empty npz": ("one.npz", lambda p: p.write_bytes(b"")),
    "cut npz": ("one.npz", lambda p: p.write_bytes(p.read_bytes()[:100])),
    "flipped npz": ("one.npz", flip),
    "another npz": ("one.npz", lambda p: np.savez(p, log_Z=np.zeros(2))),
}


def _edit(path, old, new):
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_set_aside_and_computed_again(tmp_path, damage):
    file, do = DAMAGES[damage]
    row, _ = run_cached("one", CONTENT, tmp_path, Compute())
    do(tmp_path / file)
    with pytest.warns(NestedviWarning, match=rf"{file} is damaged \(.*kept as {file}.damaged"):
        again, arrays = run_cached("one", CONTENT, tmp_path, Compute())
    assert again["digest"] == row["digest"] and arrays["log_Z"][0] == 1.5
    assert names(tmp_path) == sorted(["one.json", "one.npz", f"{file}.damaged"])
    assert run_cached("one", CONTENT, tmp_path, failing)[0]["mean"] == 1.5


def test_cells_without_a_digest_are_believed(tmp_path):
    """Those of earlier versions."""
    run_cached("one", CONTENT, tmp_path, Compute())
    row = json.loads((tmp_path / "one.json").read_text())
    del row["digest"]
    (tmp_path / "one.json").write_text(json.dumps(row))
    assert run_cached("one", CONTENT, tmp_path, failing)[0]["mean"] == 1.5


def test_a_cell_is_one_processs_at_a_time(tmp_path):
    def compute(work):
        with pytest.raises(CheckpointError, match=r"one\.json is in use by this process"):
            run_cached("one", CONTENT, tmp_path, failing)
        return {}, {}

    run_cached("one", CONTENT, tmp_path, compute)
    assert names(tmp_path) == ["one.json", "one.npz"]


def test_work_that_stops_leaves_its_checkpoint_alone(tmp_path):
    """No result, whole or half; the next call gets the same folder to go on in."""
    with pytest.raises(KeyboardInterrupt):
        run_cached("one", CONTENT, tmp_path, failing)
    (work,) = tmp_path.iterdir()
    assert names(work) == ["checkpoint"]
    seen = []
    run_cached("one", CONTENT, tmp_path, lambda folder: (seen.append(folder), ({}, {}))[1])
    assert seen == [work] and names(tmp_path) == ["one.json", "one.npz"]


def test_work_that_stops_keeps_the_old_result(tmp_path):
    """Another configuration that fails does not touch what is there."""
    run_cached("one", CONTENT, tmp_path, Compute())
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(KeyboardInterrupt):
        run_cached("one", {**CONTENT, "steps": 4}, tmp_path, failing)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before
    assert run_cached("one", CONTENT, tmp_path, failing)[0]["mean"] == 1.5


def test_a_disk_that_fails_leaves_no_half_written_file(tmp_path, monkeypatch):
    """Arrays that cannot be written: the error comes out, no file stays, and the checkpoint
    does.
    """

    def full(path, **arrays):
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(cells.np, "savez_compressed", full)
    with pytest.raises(OSError, match="no space left"):
        run_cached("one", CONTENT, tmp_path, Compute())
    assert names(tmp_path) == [f"one-{fingerprint(CONTENT)}"]


def test_keys_are_a_cells_own():
    """The same for the same seed and name, another for any other."""
    data = [
        tuple(jax.random.key_data(cell_key(*x)).tolist())
        for x in ((0, "a"), (0, "a"), (0, "b"), (1, "a"))
    ]
    assert data[0] == data[1] and len(set(data)) == 3


def test_files_keep_the_name_of_the_order():
    """The order of execution is "schedule" in files, in its place among the other fields."""

    @dataclass(frozen=True)
    class Config:
        steps: int = 3
        order: str = "two-phase"
        seed: int = 0

    assert list(recorded(Config()).items()) == [
        ("steps", 3),
        ("schedule", "two-phase"),
        ("seed", 0),
    ]
