"""Settings and configurations: the paper's numbers, changes as text, and what is refused."""

from dataclasses import replace

import pytest

from nestedvi.paper.bgmm_vae.config import (
    METHODS,
    BgmmVaeConfig,
    parse_settings,
    quick_config,
)
from nestedvi.paper.bgmm_vae.objectives import NestedKLs, WakeSleep
from tests.helpers.small_bgmm import CONFIG


def test_the_papers_settings():
    config = BgmmVaeConfig()
    assert (config.num_batches, config.batch_size, config.iterations, config.alpha) == (
        20,
        10,
        50_000,
        0.5,
    )
    assert config.eval_batches >= 100 and config.eval_size == 300 and config.seeds >= 5
    printed = METHODS["nvi-printed"]
    assert (
        printed.learning_rate,
        printed.rate_rest,
        printed.pi_c_from,
        printed.mixture_update,
    ) == (1e-3, 5e-2, "both", "sample")
    assert printed.num_prior > config.batch_size
    assert METHODS["rws-printed"].rate_rest == 5e-2 and METHODS["rws-printed"].num_samples == 10


def test_the_quick_version():
    """One data set, few steps, the collapsing row left out; methods that were asked for stay."""
    quick = quick_config(BgmmVaeConfig())
    assert (
        quick.datasets == ("mnist",)
        and quick.iterations < 5000
        and quick.methods == ("nvi-printed", "nvi", "rws")
    )
    assert quick_config(BgmmVaeConfig(methods=("rws-printed",))).methods == ("rws-printed",)


def test_settings_from_text():
    found = parse_settings("rate_rest=5e-3, pi_c_from=first,decay=true,average=none,num_prior=300")
    assert found == {
        "rate_rest": 5e-3,
        "pi_c_from": "first",
        "decay": True,
        "average": None,
        "num_prior": 300,
    }
    assert parse_settings("") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate=1", "Did you mean 'rate_rest'"),
        ("rate_rest", "name=value"),
        ("rate_rest=fast", "is a number"),
        ("decay=maybe", "true or false"),
        ("label=x", "Unknown setting"),
    ],
)
def test_settings_that_make_no_sense(text, message):
    with pytest.raises(ValueError, match=message):
        parse_settings(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("nvy",)}, "Did you mean 'nvi'"),
        ({"datasets": ("mnits",)}, "mnist"),
        ({"datasets": ()}, "at least one data set"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"split": "train"}, "Unknown split"),
    ],
)
def test_configurations_that_make_no_sense(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"rate_rest": 0.0},
        {"average": 2.0},
        {"objective": "vae"},
        {"pi_c_from": "none"},
        {"candidates": 0},
        {"candidates": 13},
    ],
)
def test_settings_are_checked(change):
    with pytest.raises(ValueError):
        replace(METHODS["nvi"], **change)


@pytest.mark.parametrize("name", METHODS)
def test_a_rows_settings_reach_its_objective(name):
    """Every option of the objective is that of the row."""
    settings = METHODS[name]
    objective = settings.make_objective()
    assert type(objective) is (NestedKLs if name.startswith("nvi") else WakeSleep)
    assert all(getattr(settings, option) == value for option, value in vars(objective).items())
