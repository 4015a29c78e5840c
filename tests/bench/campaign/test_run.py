"""The campaign's assembly with made-up answers, and one that is real and small."""

import json

import jax.numpy as jnp
import pytest

from nestedvi.bench.campaign import run
from nestedvi.bench.campaign.case import Spec
from nestedvi.bench.campaign.run import CASES, CampaignConfig, run_campaign
from nestedvi.errors import DensityError
from nestedvi.inference.answer import Answer
from nestedvi.inference.posterior import make_posterior

SMALL = {"methods": ("smc",), "seeds": 2, "particles": 20}


@pytest.fixture
def asked(monkeypatch):
    """Posteriors of log Z = 1.5 ± 0.01; how often one was asked for."""
    calls = []

    def sample(key, model, *, method, num_particles, **options):
        calls.append(options)
        z = jnp.linspace(-1.0, 1.0, 40).reshape(20, 2)
        return make_posterior(z, Answer(z, jnp.zeros(20), 1.5, 0.01, num_batches=2))

    monkeypatch.setattr(run, "sample", sample)
    return calls


def test_runs_are_compared_with_the_truth_and_kept(asked, tmp_path):
    config = CampaignConfig(targets=("banana",), **SMALL)
    result = run_campaign(config, tmp_path)
    assert [row["error"] for row in result["runs"]] == [1.5, 1.5] and asked[0] == {"dim": 2}
    assert result["summary"]["all"]["silent"] == 2
    means = result["runs"][0]["means"]
    assert [m["true"] for m in means] == [0.0, 0.0] and means[0]["sd"] == 2.0
    written = json.loads((tmp_path / "campaign.json").read_text())
    assert {"command", "versions", "device"} <= written.keys()
    assert written["targets"]["banana"]["source"] == "closed form"
    assert "| banana | a banana, 2-d | smc | +1.5000" in (tmp_path / "campaign.md").read_text()
    run_campaign(config, tmp_path)
    assert len(asked) == 2, "what is done is read back"
    run_campaign(CampaignConfig(targets=("banana",), **{**SMALL, "seeds": 3}), tmp_path)
    assert len(asked) == 3, "another seed is one more run"


def test_refusals_and_missing_data_are_rows(monkeypatch, tmp_path):
    def refuse(*args, **options):
        raise DensityError("There is nothing.\nAnd more.")

    def missing():
        raise ImportError("needs a library")

    monkeypatch.setattr(run, "sample", refuse)
    monkeypatch.setitem(CASES, "breast-cancer", Spec(missing, "gone"))
    config = CampaignConfig(targets=("banana", "breast-cancer"), **SMALL)
    rows = run_campaign(config, tmp_path)["runs"]
    assert [row.get("refused") for row in rows] == ["DensityError: There is nothing."] * 2 + [None]
    assert rows[2]["skipped"] == "needs a library"


def test_after_its_minutes_no_run_begins(asked, tmp_path):
    config = CampaignConfig(targets=("banana",), **SMALL)
    run_campaign(config, tmp_path)
    late = CampaignConfig(targets=("banana", "ring"), minutes=-1.0, **{**SMALL, "seeds": 5})
    result = run_campaign(late, tmp_path)
    assert len(asked) == 2 and len(result["runs"]) == 2


def test_there_are_enough_targets():
    """Thirty or more, the eight benchmarks among them."""
    assert len(CASES) >= 40
    assert {"ring", "many-well-rotated", "breast-cancer", "seeds", "funnel-30"} <= CASES.keys()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"targets": ("bananna",)}, "banana"),
        ({"methods": ("atuo",)}, "auto"),
        ({"particles": 3}, "20 particles"),
    ],
)
def test_what_is_wrong_is_said(given, said):
    with pytest.raises(ValueError, match=said):
        CampaignConfig(**given)


@pytest.mark.slow
def test_a_real_campaign_in_two_processes(tmp_path):
    config = CampaignConfig(
        targets=("banana", "improper-posterior"), methods=("smc",), seeds=1, particles=400, jobs=2
    )
    rows = run_campaign(config, tmp_path)["runs"]
    assert abs(rows[0]["error"]) < max(0.3, 4 * rows[0]["stderr"])
    assert "RunawayError" in rows[1]["refused"]
