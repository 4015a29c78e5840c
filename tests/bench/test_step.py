"""Benchmarks report what they say; their numbers are not asserted."""

import pytest

from nestedvi.bench.step import StepBench, bench_step


@pytest.mark.slow
def test_a_step_is_timed():
    result = bench_step(StepBench("nvi", levels=2, particles=4, steps=3, repeats=2))
    assert (
        0
        < result["step_seconds_min"]
        <= result["step_seconds_median"]
        <= result["step_seconds_max"]
    )
    assert result["compile_seconds"] > 0 and isinstance(result["xla_temp_bytes"], int)
    # One pair of residual Gaussian kernels in two dimensions, hidden 50: 2 (2·50 + 50 + 50·4 + 4)
    # numbers of four bytes.
    assert result["parameter_bytes"] == 2 * (100 + 50 + 200 + 4) * 4
    assert {
        "command",
        "versions",
        "device",
        "seed",
        "method",
        "levels",
        "particles",
    } <= result.keys()
    # Files of results call the order of execution "schedule".
    assert result["schedule"] == "sequential" and "order" not in result


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": 513}, {"particles": 0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="1 to 512 steps and particles ≥ 1"):
        bench_step(StepBench(**wrong))
