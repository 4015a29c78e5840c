"""Checkpoints: a training that was stopped, killed or whose files were damaged ends in the bits of
one that was not.
"""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import nestedvi as nvi
import nestedvi.storage.checkpoints as checkpoints_module
import nestedvi.train.loop as loop_module
from nestedvi.storage.checkpoints import Checkpoints
from tests.helpers.small_training import assert_same_bits, stacked, train

pytestmark = pytest.mark.usefixtures("compiled_once")
HERE = Path(__file__).parents[2]
CASES = {
    "sequential": {},
    "level-parallel": {"order": "level-parallel"},
    "restarts": {"restarts": 2},
}


def case(name):
    options = CASES[name]
    return {**options, "sampler": stacked(2)} if "restarts" in options else options


@pytest.fixture
def saved(monkeypatch):
    """Every tree that is saved, in order: parameters, optimiser, population, counters and
    record.
    """
    trees = []
    save = Checkpoints.save
    monkeypatch.setattr(
        Checkpoints,
        "save",
        lambda self, step, tree: (trees.append((step, tree)), save(self, step, tree))[1],
    )
    return trees


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_resuming_ends_in_the_same_bits(name, tmp_path, saved, monkeypatch):
    """Stopped after 13 of 24 steps and resumed, in chunks of other sizes: every bit is that of one
    uninterrupted run.
    """
    whole = train(24, checkpoint=tmp_path / "whole", **case(name))
    whole_state, whole_record, _ = saved[-1][1]
    monkeypatch.setattr(loop_module, "_SECONDS_PER_CHUNK", 0.0)
    train(13, checkpoint=tmp_path / "parts", **case(name))
    resumed = train(24, checkpoint=tmp_path / "parts", **case(name))
    assert_same_bits(resumed.sampler, whole.sampler)
    assert_same_bits(resumed.record, whole.record)
    state, record, seconds = saved[-1][1]
    assert_same_bits((state, record), (whole_state, whole_record))
    # Time is the one thing that differs: it counts the interrupted part too.
    before = next(tree[2][0] for step, tree in saved if step == 13)
    assert resumed.seconds > seconds[0] - 1e-9 > before
    assert resumed.num_steps == 24 and resumed.record.log_Z_hat.shape[0] == 24


FINGERPRINT = {"name": "mine", "numbers": list(range(20))}


def tree_at(step):
    """A tree as training has it: its record grows with the step, an entry may be empty."""
    return [np.arange(300.0) * step, np.int32(step), np.zeros((0, 2)), np.arange(float(step))]


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two-steps")
    store = Checkpoints(folder, FINGERPRINT)
    store.save(4, tree_at(4))
    store.save(7, tree_at(7))
    store.close()
    return folder


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(bytes(content))


DAMAGES = {
    "flip": flip,
    "truncate": lambda p: os.truncate(p, p.stat().st_size // 2),
    "delete": os.unlink,
}


def restore(folder):
    store = Checkpoints(folder, FINGERPRINT)
    try:
        return store.restore(tree_at)
    finally:
        store.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_is_harmless_or_noticed(damage, two_steps, tmp_path):
    """File by file: either the newest step comes back bit for bit, or the one before does, with a
    warning that says so.
    """
    files = sorted(p.relative_to(two_steps) for p in (two_steps / "7").rglob("*") if p.is_file())
    noticed = []
    for i, file in enumerate(files):
        copy = tmp_path / str(i)
        shutil.copytree(two_steps, copy)
        DAMAGES[damage](copy / file)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            step, tree = restore(copy)
        messages = [str(w.message) for w in warned if w.category is nvi.NestedviWarning]
        assert_same_bits(tree, tree_at(step))
        assert [step, bool(messages)] in ([7, False], [4, True])
        if messages:
            assert (
                "Damaged checkpoint" in messages[0]
                and "step 7" in messages[0]
                and "step 4, the last good one" in messages[0]
            )
            noticed.append(str(file))
    assert "7/meta/metadata" in noticed and any("/d/" in name for name in noticed)


def test_a_damaged_fingerprint_does_not_pass_for_another_configuration(two_steps, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    meta = copy / "7" / "meta" / "metadata"
    meta.write_text(meta.read_text().replace("mine", "mime"))
    with pytest.warns(nvi.NestedviWarning, match="Damaged checkpoint"):
        assert restore(copy)[0] == 4


def test_arrays_of_another_checkpoint_are_noticed(two_steps, tmp_path):
    """Whole files with the wrong content: only their digests give them away."""
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    other = Checkpoints(tmp_path / "other", {})
    other.save(7, [x + 1 for x in tree_at(7)])
    other.close()
    shutil.rmtree(copy / "7" / "state")
    shutil.copytree(tmp_path / "other" / "7" / "state", copy / "7" / "state")
    with pytest.warns(nvi.NestedviWarning, match="Damaged checkpoint"):
        assert restore(copy)[0] == 4


def test_a_damaged_step_is_written_again(two_steps, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    flip(copy / "7" / "meta" / "metadata")
    store = Checkpoints(copy, FINGERPRINT)
    with pytest.warns(nvi.NestedviWarning, match="Damaged checkpoint"):
        assert store.restore(tree_at)[0] == 4
    store.save(7, tree_at(7))
    store.close()
    assert restore(copy)[0] == 7


def test_a_step_under_another_number_is_noticed(two_steps, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    (copy / "7").rename(copy / "9")
    with pytest.warns(nvi.NestedviWarning, match=r"step 9 \(what it holds is step 7\)"):
        assert restore(copy)[0] == 4


def test_a_step_without_its_list_of_files_is_checked_array_by_array(two_steps, tmp_path):
    """A process that is killed between the step and its list leaves a good step."""
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    (copy / "7" / "files.json").unlink()
    step, tree = restore(copy)
    assert step == 7
    assert_same_bits(tree, tree_at(7))


def test_damage_makes_no_noise(two_steps, tmp_path, capfd):
    """Readers of damaged files print tracebacks from threads of their own; none is started."""
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    for file in (copy / "7" / "state").rglob("*"):
        if file.is_file():
            DAMAGES["truncate"](file)
    with pytest.warns(nvi.NestedviWarning, match="Damaged checkpoint"):
        restore(copy)
    assert capfd.readouterr() == ("", "")


def test_a_folder_is_one_trainings_at_a_time(tmp_path):
    store = Checkpoints(tmp_path, FINGERPRINT)
    with pytest.raises(nvi.errors.CheckpointError, match=r"folder .* is in use by this process"):
        Checkpoints(tmp_path, FINGERPRINT)
    store.close()
    Checkpoints(tmp_path, FINGERPRINT).close()


def test_after_a_failed_save_the_next_one_works(tmp_path, monkeypatch, capfd):
    store = Checkpoints(tmp_path, FINGERPRINT)
    with monkeypatch.context() as patch:

        def full(*_):
            raise OSError(28, "No space left on device")

        patch.setattr(checkpoints_module, "reserve", full)
        with pytest.raises(nvi.errors.CheckpointError, match=r"of step 3 to .*No space left"):
            store.save(3, tree_at(3))
    store.save(4, tree_at(4))
    store.close()
    assert restore(tmp_path)[0] == 4 and capfd.readouterr() == ("", "")


def test_when_everything_is_damaged_it_says_so(two_steps, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    for step in ("4", "7"):
        flip(copy / step / "meta" / "metadata")
    with pytest.raises(
        nvi.errors.CheckpointError,
        match=r"No checkpoint in .* can be read \(step 7.*step 4.*Delete the folder",
    ):
        restore(copy)


def test_unfinished_writes_are_ignored(two_steps, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(two_steps, copy)
    (copy / "7").rename(copy / "7.orbax-checkpoint-tmp")
    assert restore(copy)[0] == 4
    assert [p.name for p in copy.iterdir()] == ["4"]


def test_training_goes_on_from_the_last_good_checkpoint(tmp_path):
    """Damage after the fact costs the steps since the checkpoint before, and nothing else."""
    whole = train(24)
    train(10, checkpoint=tmp_path)
    train(17, checkpoint=tmp_path)
    for file in (tmp_path / "17" / "state").rglob("*"):
        if file.is_file():
            flip(file)
    with pytest.warns(nvi.NestedviWarning, match=r"step 17.*Going on from step 10"):
        resumed = train(24, checkpoint=tmp_path)
    assert_same_bits((resumed.sampler, resumed.record), (whole.sampler, whole.record))
    assert_same_bits(train(24, checkpoint=tmp_path).record, whole.record)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        nvi.errors.CheckpointError,
        match=r"Cannot write checkpoints to .*file.*Choose another folder",
    ):
        train(2, checkpoint=tmp_path / "file" / "below")


def test_a_folder_that_disappears_is_reported(tmp_path):
    store = Checkpoints(tmp_path / "here", {})
    shutil.rmtree(tmp_path / "here")
    (tmp_path / "here").write_text("in the way")
    with pytest.raises(nvi.errors.CheckpointError, match="Cannot write the checkpoint of step 3"):
        store.save(3, tree_at(3))


def forbidden(*args, **kwargs):
    raise AssertionError("a checkpoint was unpickled")


def test_loading_never_runs_code(tmp_path, two_steps, monkeypatch):
    """No pickle is read, whether or not one lies in the folder."""
    copy, trap = tmp_path / "copy", tmp_path / "trap"
    shutil.copytree(two_steps, copy)

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(trap),)

    for place in (copy, copy / "7", copy / "7" / "meta", copy / "7" / "state"):
        for name in ("state.pkl", "arrays.npy"):
            (place / name).write_bytes(pickle.dumps(Bomb()))
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    monkeypatch.setattr(np, "load", forbidden)
    step, tree = restore(copy)
    assert step == 7 and not trap.exists()
    assert_same_bits(tree, tree_at(7))


STEPS = 300
PROGRAM = f"""
import sys
import nestedvi.train.loop as loop_module
from tests.helpers.small_training import train
loop_module._SECONDS_PER_CHUNK = 0.0

class Talk:
    def start(self, total, done):
        print("start", done, flush=True)
    def update(self, done, **values):
        print("update", done, flush=True)
    def stop(self):
        pass

train({STEPS}, checkpoint=sys.argv[1], checkpoint_seconds=float(sys.argv[2]), progress=Talk())
"""


@pytest.fixture
def begin(compiled_once):
    """Starts the training in a process of its own: one step a chunk."""
    processes = []

    def go(folder, seconds):
        path = os.pathsep.join([str(HERE), str(HERE / "src")])
        # Every process orders its sets in a way of its own; a checkpoint must not depend on it.
        ours = {"PYTHONPATH": path, "PYTHONHASHSEED": str(len(processes))}
        command = [sys.executable, "-c", PROGRAM, str(folder), str(seconds)]
        process = subprocess.Popen(
            command,
            env={**compiled_once, **ours},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield go
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def first_update(process):
    """The step at which the training began, once it is under way."""
    began = None
    for line in process.stdout:
        word, step = line.split()
        began = int(step) if word == "start" else began
        if word == "update":
            return began
    raise AssertionError(process.stderr.read())


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.0005)


@pytest.mark.slow
def test_kill_in_the_middle_of_a_write_loses_nothing(tmp_path, begin):
    """Killed twice, each time within a write; what is left continues to the same bits."""
    whole = train(STEPS)
    folder, began = tmp_path / "killed", []
    for pattern in ("*-tmp/meta*", "*-tmp/state*/ocdbt*/d/*"):
        process = begin(folder, 0.0)
        began.append(first_update(process))
        threading.Thread(target=process.stdout.read, daemon=True).start()
        wait_for(lambda pattern=pattern: any(folder.glob(pattern)))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert began[0] == 0 < began[1] < STEPS
    resumed = train(STEPS, checkpoint=folder)
    assert_same_bits((resumed.sampler, resumed.record), (whole.sampler, whole.record))
    assert not list(folder.glob("*tmp*"))


def test_interrupt_saves_and_the_same_call_goes_on(tmp_path, begin):
    process = begin(tmp_path, 1e9)
    assert first_update(process) == 0
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert (
        "KeyboardInterrupt: stopped at step" in stderr
        and "the same call goes on from there" in stderr
    )
    steps = [int(p.name) for p in tmp_path.iterdir()]
    assert len(steps) == 1 and 0 < steps[0] < STEPS
    resumed, whole = train(STEPS, checkpoint=tmp_path), train(STEPS)
    assert_same_bits((resumed.sampler, resumed.record), (whole.sampler, whole.record))


def test_of_several_processes_only_the_first_has_the_lock(tmp_path, monkeypatch):
    """Two in one folder; the others fail with a sentence where the first one cannot use it."""
    monkeypatch.setattr(checkpoints_module, "is_first", lambda: False)
    first = tmp_path / ".lock"
    other = Checkpoints(tmp_path, {})
    assert not first.exists()
    other.close()
    monkeypatch.setattr(checkpoints_module, "agree", lambda failed: (True, ()))
    with pytest.raises(nvi.errors.CheckpointError, match="The first process cannot use"):
        Checkpoints(tmp_path, {})
