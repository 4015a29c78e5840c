"""What commands share: options that were given, lists of names, and a configuration's defaults."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from nestedvi.cli.main import app
from nestedvi.cli.options import _as_typed, defaults_of, given, names_in, print_json
from tests.helpers.command_line import RUNNER


def test_a_changed_default_is_shown(monkeypatch):
    from nestedvi.paper.annealing import config

    class Changed(config.AnnealingConfig):
        def __init__(self, iterations: int = 12345): ...

    monkeypatch.setattr(config, "AnnealingConfig", Changed)
    assert "(12345)" in RUNNER.invoke(app, ["reproduce", "annealing", "--help"]).output


def test_only_options_that_were_given_change_the_configuration():
    assert given(a=None, b=0, c=False, d="") == {"b": 0, "c": False, "d": ""}


def test_names_are_separated_by_commas():
    assert names_in(" nvi, avo ,,svi") == ("nvi", "avo", "svi")
    assert names_in("") == () and names_in(None) is None


def test_defaults_of_a_dataclass_and_of_a_function():
    """What has no default, or None, is not shown."""
    defaults = defaults_of("nestedvi.bench.step:StepBench")
    assert defaults["levels"] == 8 and defaults["method"] == "nvir-star"
    sample = defaults_of("nestedvi.inference.sample:sample")
    assert sample["num_particles"] == 2000 and not {"key", "dim", "num_steps"} & sample.keys()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "yes"),
        (False, "no"),
        (("a", "b"), "a, b"),
        (3, "3"),
        ("", False),
    ],
)
def test_a_default_is_shown_as_it_is_typed(value, shown):
    option = SimpleNamespace(opts=["--yes"], secondary_opts=["--no"])
    assert _as_typed(option, value) == shown


def test_a_flag_that_is_off_and_has_no_opposite_shows_nothing():
    assert _as_typed(SimpleNamespace(opts=["--quick"], secondary_opts=[]), False) is False


def test_json_is_one_object(capsys):
    print_json({"log_Z": np.float32(0.5), "levels": (2, 3)})
    assert json.loads(capsys.readouterr().out) == {"log_Z": 0.5, "levels": [2, 3]}
