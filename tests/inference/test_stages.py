"""Stages of an answer: reported as they end, timed by name, and closed however the block ends."""

import pytest

from nestedvi.inference.stages import Stages


class Listener:
    def __init__(self):
        self.events = []

    def start(self, total, done):
        self.events.append(("start", done))

    def update(self, done, *, steps_per_second, **measures):
        self.events.append((done, measures))

    def stop(self):
        self.events.append("stop")


def test_stages_are_reported_and_timed():
    listener = Listener()
    with Stages(listener) as stages:
        stages.begin("search")
        stages.done(log_Z=1)
        stages.begin("run")
        stages.begin("search")
    assert listener.events == [("start", 0), (1, {"log_Z": 1.0}), "stop"]
    assert set(stages.seconds) == {"search", "run"} and min(stages.seconds.values()) >= 0


def test_the_display_ends_with_an_error_too():
    listener = Listener()
    with pytest.raises(RuntimeError, match="halfway"), Stages(listener) as stages:
        stages.begin("search")
        raise RuntimeError("halfway")
    assert listener.events[-1] == "stop" and "search" in stages.seconds
