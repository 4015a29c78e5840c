"""The terminal's view of a training."""

import io

import pytest
from rich.console import Console

from nestedvi.progress import ProgressBar, Silent, as_reporter


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
