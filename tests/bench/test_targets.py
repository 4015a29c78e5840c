"""The benchmark's assembly with made-up answers; what is asked for wrongly."""

import json

import jax
import jax.numpy as jnp
import pytest

from nestedvi.bench import targets as bench
from nestedvi.bench.targets import TargetsConfig, bench_targets, find_target
from nestedvi.inference.answer import Answer, Cost

ERRORS = [0.1, -0.3, 0.05]


@pytest.fixture
def made_up(monkeypatch):
    """A method that is wrong by known amounts, and how often it was asked."""
    asked = []

    def answer(key, request):
        log_Z, dim, num = (
            find_target("ring").log_Z + ERRORS[len(asked) % 3],
            request.dim,
            request.num_particles,
        )
        asked.append(dim)
        return Answer(
            jnp.zeros((num, dim)),
            jnp.zeros(num),
            log_Z,
            0.01,
            diagnosis=("Doubtful.",),
            cost=Cost(30.0, 12.0, 7.0),
        )

    monkeypatch.setitem(bench.METHODS, "auto", answer)
    return asked


def test_rows_hold_errors_costs_and_what_was_said(tmp_path, made_up):
    config = TargetsConfig(targets=("ring",), methods=("auto",), seeds=3, particles=20)
    row = bench_targets(config, tmp_path)["rows"][0]
    assert row["mean_abs_error"] == pytest.approx(0.15) and row["worst_error"] == pytest.approx(
        -0.3
    )
    assert [row[name] for name in ("gradients_learning", "gradients_sampling", "values")] == [
        30,
        12,
        7,
    ]
    assert row["ess_percent"] == pytest.approx(100)
    assert (
        row["worst_diagnosis"][0] == "Doubtful."
        and [run["stderr"] for run in row["runs"]] == [0.01] * 3
    )
    written = json.loads((tmp_path / "targets.json").read_text())
    assert (
        written["rows"][0]["mean_error"] == pytest.approx(-0.05)
        and {"command", "versions", "device"} <= written.keys()
    )
    assert "| ring | 2 | auto | 0.1500 | -0.300 (warned) |" in (tmp_path / "targets.md").read_text()
    assert (tmp_path / "targets.png").stat().st_size > 1000
    bench_targets(config, tmp_path)
    assert len(made_up) == 3, "what is done is read back"


def test_a_rotated_target_has_the_same_log_Z():
    straight, turned = find_target("funnel"), find_target("funnel-rotated")
    assert turned.log_Z == straight.log_Z and turned.dim == straight.dim
    z = jax.random.normal(jax.random.key(0), (10,))
    assert abs(float(straight.build().log_gamma(z) - turned.build().log_gamma(z))) > 0.1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"targets": ("rnig",)}, "ring"),
        ({"methods": ("atuo",)}, "auto"),
        ({"particles": 3}, "20 particles"),
    ],
)
def test_what_is_wrong_is_said(given, said):
    with pytest.raises(ValueError, match=said):
        TargetsConfig(**given)
