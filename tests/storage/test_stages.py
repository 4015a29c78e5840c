"""Stages that are kept: computed once, read back bit for bit, computed again where they are
damaged, and refused to another computation.
"""

import shutil

import numpy as np
import pytest

import nestedvi.storage.stages as stages_module
from nestedvi.errors import CheckpointError, NestedviWarning
from nestedvi.storage.stages import KeptStages

FINGERPRINT = {"model": "a" * 64, "key": "[0, 1]"}


class Stage:
    """Work that counts how often it was done."""

    def __init__(self, value=1.5):
        self.value, self.calls = value, 0

    def __call__(self):
        self.calls += 1
        return {"x": np.arange(300.0) * self.value}


@pytest.fixture
def opened(tmp_path):
    stores = []

    def go(folder=tmp_path, **fingerprint):
        for store in stores:
            store.close()
        stores[:] = [KeptStages(folder, {**FINGERPRINT, **fingerprint}, {})]
        return stores[0]

    yield go
    for store in stores:
        store.close()


def test_a_stage_is_computed_once(opened, tmp_path):
    work = Stage()
    first = opened().keep("Fit 1", work)
    again = opened().keep("Fit 1", work)
    assert work.calls == 1 and again["x"].tobytes() == first["x"].tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "fit-1.stage"]


def test_an_interrupted_stage_leaves_nothing(opened, tmp_path):
    def stopped():
        raise KeyboardInterrupt

    store = opened()
    with pytest.raises(KeyboardInterrupt):
        store.keep("one", stopped)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"model": "b" * 64}, "another call, with another model. Use another folder"),
        ({"key": "[0, 2]"}, r"with another key \(\[0, 1\]\)"),
        ({"model": "b" * 64, "key": "x"}, r"another model and another key \(\[0, 1\]\)"),
        ({"method": "smc"}, "with another method"),
    ],
)
def test_another_computation_is_refused_by_name(opened, other, message):
    opened().keep("one", Stage())
    with pytest.raises(CheckpointError, match=message):
        opened(**other)
    # What was refused holds no lock.
    opened().keep("one", Stage())


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x01
    path.write_bytes(bytes(content))


DAMAGES = {
    "flip": flip,
    "cut": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "empty": lambda p: p.write_bytes(b""),
    "head": lambda p: p.write_bytes(b"x" + p.read_bytes()),
    "another": lambda p: shutil.copy(p.with_name("other.stage"), p),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_stage_is_computed_again(opened, tmp_path, damage):
    store = opened()
    first = store.keep("one", Stage())
    store.keep("other", Stage(2.5))
    DAMAGES[damage](tmp_path / "one.stage")
    work = Stage()
    with pytest.warns(NestedviWarning, match=r"one\.stage is damaged .* computed again"):
        again = opened().keep("one", work)
    assert work.calls == 1 and again["x"].tobytes() == first["x"].tobytes()
    opened().keep("one", work)
    assert work.calls == 1


def test_a_missing_stage_is_computed_again(opened, tmp_path):
    opened().keep("one", Stage())
    (tmp_path / "one.stage").unlink()
    work = Stage()
    opened().keep("one", work)
    assert work.calls == 1


def test_a_full_disk_does_not_end_the_computation(opened, monkeypatch, tmp_path):
    store = opened()

    def full(path, write):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stages_module, "write_atomic", full)
    with pytest.warns(NestedviWarning, match="'one' cannot be kept in .*No space left.*goes on"):
        result = store.keep("one", Stage())
    assert result["x"][1] == 1.5 and not list(tmp_path.glob("*.stage"))


def test_what_cannot_be_stored_is_reported(opened):
    with pytest.warns(NestedviWarning, match=r"'one' cannot be kept .*function cannot be stored"):
        assert opened().keep("one", lambda: Stage.__call__) is Stage.__call__


def test_a_folder_is_one_computations_at_a_time(opened, tmp_path):
    opened()
    with pytest.raises(CheckpointError, match="in use by this process"):
        KeptStages(tmp_path, FINGERPRINT, {})


def test_a_folder_that_cannot_be_written_is_refused():
    with pytest.raises(CheckpointError, match="Cannot write checkpoints to /dev/null/x"):
        KeptStages("/dev/null/x", FINGERPRINT, {})
