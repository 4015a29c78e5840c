"""Tables show the numbers that they are given, and the paper's beside them."""

from nestedvi.paper.annealing.tables import PAPER, budget_table, large_k_table, results_table

LABELS = {"nvi": "NVI", "nvir-star": "NVIR*"}
ROW = {
    "method": "nvi",
    "K": 4,
    "particles": 72,
    "iterations": 500,
    "log_Z_hat_mean": 1.9712,
    "log_Z_hat_std": 0.0123,
    "ess_percent": 45.26,
    "ess_percent_std": 1.54,
    "train_seconds": 12.3,
}


def columns(line):
    return [column.strip() for column in line.strip("|").split("|")]


def test_ours_stand_beside_the_papers():
    """One line a method, one column a K; a dash where the paper has no number, nothing where we
    have none.
    """
    rows = [ROW, {**ROW, "K": 3}, {**ROW, "method": "nvir-star"}]
    head, rule, first, second = results_table(rows, LABELS, PAPER).splitlines()
    assert columns(head)[1:] == ["K = 3", "K = 4"] and rule == "|---|---|---|"
    ours = "1.971 ± 0.012 / 45.3 ± 1.5"
    assert columns(first) == ["NVI", f"{ours} (–)", f"{ours} (1.97 / 45)"]
    assert columns(second) == ["NVIR*", "", f"{ours} (2.06 / 95)"]


def test_many_levels():
    """Sizes in megabytes, steps in microseconds; a step that was not timed is not a number."""
    sizes = {"level_parallel_temp_bytes": 2_500_000, "sequential_temp_bytes": 40_000}
    rows = [{**ROW, **sizes, "step_seconds": 2e-4}, {**ROW, **sizes, "step_seconds": None}]
    *_, first, second = large_k_table(rows).splitlines()
    assert columns(first)[2:] == [
        "1.971 ± 0.012",
        "45.3 ± 1.5",
        "200",
        "12",
        "2.50 MB",
        "0.04 MB",
    ]
    assert columns(second)[4] == "nan"


def test_the_smallest_budget_comes_first():
    rows = [
        {**ROW, "particle_moves": moves, "learning_rate": 3e-3, "reached": moves > 100_000}
        for moves in (1_008_000, 5_000)
    ]
    *_, first, second = budget_table(rows, LABELS).splitlines()
    assert columns(first)[:6] == ["NVI", "4", "72", "500", "0.003", "5,000"]
    assert columns(first)[-1] == "no" and columns(second)[-1] == "yes"
    assert columns(second)[5] == "1,008,000"
