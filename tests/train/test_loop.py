"""The training loop: what it reports, when it gives up, and how it is interrupted."""

import jax.numpy as jnp
import numpy as np
import pytest

import nestedvi as nvi
import nestedvi.train.loop as loop_module
from nestedvi.storage.checkpoints import Checkpoints
from tests.helpers.small_training import (
    RARELY,
    WALLED,
    arrays,
    assert_same_bits,
    train,
    walled,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


class Log:
    """A reporter that keeps what it was told."""

    def __init__(self):
        self.calls = []

    def start(self, total, done):
        self.calls.append(("start", total, done))

    def update(self, done, **values):
        self.calls.append(("update", done, values))

    def stop(self):
        self.calls.append(("stop",))


def test_progress_is_told_in_order():
    log = Log()
    train(40, progress=log)
    kinds = [call[0] for call in log.calls]
    assert kinds[0] == "start" and kinds[-1] == "stop" and set(kinds[1:-1]) == {"update"}
    assert log.calls[0] == ("start", 40, 0)
    done = [call[1] for call in log.calls[1:-1]]
    assert done == sorted(set(done)) and done[-1] == 40
    values = log.calls[-2][2]
    assert values.keys() == {"log_Z_hat", "ess_percent", "steps_per_second"}
    assert 0 < values["ess_percent"] <= 100 and values["steps_per_second"] > 0


def test_progress_ends_even_when_training_fails():
    log = Log()
    with pytest.raises(nvi.errors.NonFiniteGradientError):
        train(40, sampler=walled(*(-jnp.inf,) * 3), max_nonfinite=2, progress=log, **WALLED)
    assert [call[0] for call in log.calls] == ["start", "stop"]


def test_a_short_training_reports_its_end():
    log = Log()
    train(3, progress=log)
    assert [call[:2] for call in log.calls] == [("start", 3), ("update", 3), ("stop",)]


@pytest.fixture(scope="module")
def spoilt_training(compiled_once):
    """A training at a wall that tolerates everything, and which of its steps were spoilt."""
    result = train(200, sampler=walled(*RARELY), max_nonfinite=10**6, **WALLED)
    return result, np.isnan(result.record.level_divergence[:, 2])


def test_spoilt_gradients_are_skipped_and_counted_where_they_occur(spoilt_training):
    result, spoilt = spoilt_training
    assert 20 < spoilt.sum() < 180
    np.testing.assert_array_equal(result.skipped, [0, 0, spoilt.sum()])
    assert all(np.isfinite(x).all() for x in arrays(result.sampler.transitions))


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["short chunks", "long chunks"])
def test_a_streak_counts_wherever_chunks_begin_and_end(monkeypatch, spoilt_training, seconds):
    """The longest streak is tolerated by a limit above it and refused by a limit equal to it,
    however steps are cut up.
    """
    monkeypatch.setattr(loop_module, "_SECONDS_PER_CHUNK", seconds)
    _, spoilt = spoilt_training
    longest = max(len(run) for run in "".join("x" if s else " " for s in spoilt).split())
    assert longest >= 2 and not spoilt[-longest:].all()
    options = {"sampler": walled(*RARELY), **WALLED}
    train(200, max_nonfinite=longest + 1, **options)
    with pytest.raises(
        nvi.errors.NonFiniteGradientError, match=f"level 3 was not finite {longest} times in a row"
    ):
        train(200, max_nonfinite=longest, **options)


def test_the_first_level_that_fails_is_named():
    """Everything after a NaN is NaN; the message names where it began."""
    with pytest.raises(nvi.errors.NonFiniteGradientError, match="level 2 was"):
        train(20, sampler=walled(jnp.inf, -jnp.inf, jnp.inf), max_nonfinite=5, **WALLED)


def test_a_disk_that_fills_up_does_not_end_a_training(tmp_path, monkeypatch):
    """Saves that fail are said, the next is tried, and the sampler that comes back has the bits of
    an undisturbed training; what was saved at last can be resumed.
    """
    whole = train(24)
    monkeypatch.setattr(loop_module, "_SECONDS_PER_CHUNK", 0.0)
    save, failed = Checkpoints.save, []

    def full(self, step, tree):
        if step < 23:
            failed.append(step)
            raise nvi.errors.CheckpointError(f"Cannot write step {step}: no space left.")
        save(self, step, tree)

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.warns(nvi.NestedviWarning, match="no space left. Training goes on") as said:
        result = train(24, checkpoint=tmp_path, checkpoint_seconds=0.0)
    assert len(said) == len(failed) > 2
    assert_same_bits((result.sampler, result.record), (whole.sampler, whole.record))
    assert max(int(path.name) for path in tmp_path.iterdir()) == 24


def test_a_last_save_that_fails_still_returns_the_sampler(tmp_path, monkeypatch):
    def full(self, step, tree):
        raise nvi.errors.CheckpointError("no space left.")

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.warns(nvi.NestedviWarning, match="complete and returned, but not saved"):
        result = train(24, checkpoint=tmp_path)
    assert result.num_steps == 24


def test_an_interrupt_never_joins_a_state_with_another_steps_number(tmp_path, monkeypatch):
    """Ctrl-C twice, the second right after a chunk: what is saved is a whole step, and the same
    call ends in the bits of an undisturbed training.
    """
    whole = train(24)
    monkeypatch.setattr(loop_module, "_SECONDS_PER_CHUNK", 0.0)
    after, calls = loop_module._Reached.after, []

    def interrupted(self, *args):
        calls.append(self.done)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return after(self, *args)

    monkeypatch.setattr(loop_module._Reached, "after", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"stopped at step 16 of 24; .* holds step 16"):
        train(24, checkpoint=tmp_path)
    monkeypatch.setattr(loop_module._Reached, "after", after)
    resumed = train(24, checkpoint=tmp_path)
    assert_same_bits((resumed.sampler, resumed.record), (whole.sampler, whole.record))


def test_a_checkpoint_past_the_end_is_refused(tmp_path, compiled_once):
    """A shorter training cannot be cut out of a longer one."""
    train(4, checkpoint=tmp_path)
    with pytest.raises(nvi.errors.CheckpointError, match="holds step 4"):
        train(2, checkpoint=tmp_path)
