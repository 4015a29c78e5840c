"""Stages of an answer: reported as they end, timed by name, and closed however the block ends."""

import jax
import jax.numpy as jnp
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
    assert set(stages.timings) == {"search", "run", "compilation"}
    assert min(stages.timings.values()) >= 0


def test_compilation_is_timed():
    with Stages(False) as stages:
        stages.begin("search")
        jax.jit(lambda x: jnp.sin(x) + 12.25).lower(jnp.ones(7)).compile()
    assert 0 < stages.timings["compilation"] <= stages.timings["search"]


def test_the_display_ends_with_an_error_too():
    listener = Listener()
    with pytest.raises(RuntimeError, match="halfway"), Stages(listener) as stages:
        stages.begin("search")
        raise RuntimeError("halfway")
    assert listener.events[-1] == "stop" and "search" in stages.timings
