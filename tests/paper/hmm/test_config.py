"""The configuration refuses what cannot be run, and its quick version keeps what was chosen."""

from dataclasses import replace

import pytest

import nestedvi as nvi
from nestedvi.paper.hmm.config import HMMConfig, quick_hmm_config


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"rows": ("recursion-em", "recursion-me")},
            nvi.errors.UnknownNameError,
            "Did you mean 'recursion-em'?",
        ),
        ({"rows": ()}, ValueError, "at least one row"),
        ({"refresh_every": 7}, ValueError, "`refresh_every` must divide the 200 steps; got 7"),
        ({"references": 2001}, ValueError, "at most 2000; got 2001"),
        ({"iterations": 0}, ValueError, "must be at least 1"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(change, error, message):
    """One clear error before anything runs."""
    with pytest.raises(error) as raised:
        replace(HMMConfig(), **change)
    assert message in str(raised.value)


def test_the_quick_version_is_a_version_of_the_same_rows():
    """Rows that the user chose stay; the seed stays; everything is smaller."""
    full = HMMConfig(seed=4)
    quick = quick_hmm_config(full)
    assert (
        set(quick.rows) < set(full.rows) and quick.seed == 4 and quick.iterations < full.iterations
    )
    assert quick_hmm_config(replace(full, rows=("gmm",))).rows == ("gmm",)
