"""The configuration refuses what cannot be run, and its quick version keeps what was chosen."""

from dataclasses import fields

import pytest

import nestedvi as nvi
from nestedvi.paper.annealing.config import AnnealingConfig, quick_config


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"methods": ()}, ValueError, "at least one method"),
        ({"levels": ()}, ValueError, "one value of K"),
        ({"methods": ("nvir-sta",)}, nvi.errors.UnknownNameError, "Did you mean 'nvir-star'"),
        ({"methods": ("ais",)}, ValueError, "learns nothing"),
        ({"levels": (1,)}, ValueError, r"between 2 and 144 .* got 1"),
        ({"levels": (200,)}, ValueError, r"between 2 and 144 .* got 200"),
        ({"iterations": 0}, ValueError, "at least 1; got 10 and 0"),
        ({"order": "sequentiel"}, nvi.errors.UnknownNameError, "sequential"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(change, error, message):
    with pytest.raises(error, match=message):
        AnnealingConfig(**change)


def test_the_quick_version_is_smaller_and_keeps_what_was_chosen():
    full = AnnealingConfig(methods=("avo",), seed=4, restarts=1, order="two-phase")
    quick = quick_config(full)
    kept = {field.name for field in fields(full)} - {
        "top_only",
        "average",
        "iterations",
        "eval_batches",
        "large_levels",
        "budgets",
    }
    assert {name: getattr(quick, name) for name in kept} == {
        name: getattr(full, name) for name in kept
    }
    assert quick.iterations < full.iterations and len(quick.budgets) < len(full.budgets)
    assert quick_config(AnnealingConfig(iterations=7)).iterations == 7
