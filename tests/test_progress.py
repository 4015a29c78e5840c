"""The terminal's view of a training, and of the stages of an answer: reported as they end, timed by
name, and closed however the block ends.
"""

import io

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

from nestedvi.progress import ProgressBar, Silent, Stages, Stretch, as_reporter


def test_the_bar_shows_numbers_and_ends():
    out = io.StringIO()
    bar = ProgressBar("learning", Console(file=out, force_terminal=True, width=140))
    bar.start(100, 20)
    bar.update(60, log_Z_hat=1.2345, ess_percent=87.4, steps_per_second=1234.5)
    bar.stop()
    text = out.getvalue()
    for piece in ("learning", "60/100", "log Ẑ 1.23", "ESS 87%", "steps/s", "60%"):
        assert piece in text
    assert not bar._progress.live.is_started


def test_results_can_be_piped():
    """The bar writes to standard error."""
    assert ProgressBar()._progress.console.stderr


@pytest.mark.parametrize("off", [False, None])
def test_off_is_silent(off, capsys):
    reporter = as_reporter(off)
    assert isinstance(reporter, Silent)
    reporter.start(10, 0)
    reporter.update(5, log_Z_hat=0.0, ess_percent=1.0, steps_per_second=1.0)
    reporter.stop()
    assert capsys.readouterr() == ("", "")


def test_true_is_a_bar_and_anything_else_is_itself():
    assert isinstance(as_reporter(True), ProgressBar)
    mine = Silent()
    assert as_reporter(mine) is mine


class Noting(Silent):
    """Keeps every report."""

    def __init__(self):
        self.reports = []

    def start(self, total, done):
        self.reports.append(("start", total, done))

    def update(self, done, **measures):
        self.reports.append(("update", done, measures))

    def stop(self):
        self.reports.append(("stop",))


def test_stretches_add_up_to_the_whole():
    """Four trials of ten steps side by side, then sixty steps: one work of a hundred, also when it
    is gone on with.
    """
    whole = Noting()
    trial, rest = Stretch(whole, 100, each=4), Stretch(whole, 100, before=40)
    trial.start(10, 5)
    trial.update(10, steps_per_second=2.0, bound=1.0)
    trial.stop()
    rest.start(60, 0)
    rest.update(60, steps_per_second=3.0)
    assert whole.reports == [
        ("start", 100, 20),
        ("update", 40, {"steps_per_second": 2.0, "bound": 1.0}),
        ("stop",),
        ("start", 100, 40),
        ("update", 100, {"steps_per_second": 3.0}),
    ]


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


@pytest.mark.parametrize("width", [80, 140])
def test_the_bar_names_the_stage_and_has_no_speed_for_it(width):
    out = io.StringIO()
    bar = ProgressBar("sampling", Console(file=out, force_terminal=True, width=width))
    with Stages(bar) as stages:
        stages.begin("importance sampling")
        stages.done(log_Z=-1.25)
        bar._progress.refresh()
    text = out.getvalue()
    assert "sampling: importance" in text and "log Z -1.25" in text and "steps/s" not in text


def test_a_reporter_need_not_know_stages():
    """Those that users wrote before have start, update and stop."""
    with Stages(Silent()) as stages:
        stages.begin("search")
        stages.done(log_Z=0.0)
    assert "search" in stages.timings
