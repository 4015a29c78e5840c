"""What lies beyond the paper's table: further targets, many levels, training budgets."""

import pytest

from nestedvi.paper.annealing.beyond import budget_cells, budget_row, large_k_cells, target_cells
from nestedvi.paper.annealing.config import AnnealingConfig

FULL = AnnealingConfig()


def test_beyond_the_table():
    many = list(large_k_cells(FULL))
    assert {c.K for c in many} >= {16, 32, 64, 128}
    assert all(c.order == "level-parallel" for c in many)
    assert len(list(target_cells(FULL))) == 2 and all(c.decay for c in budget_cells(FULL))


@pytest.mark.parametrize(
    ("log_Z_hat", "ess", "reached"), [(2.075, 95.5, True), (2.05, 99, False), (2.08, 94, False)]
)
def test_a_budget_suffices_if_both_numbers_are_good(log_Z_hat, ess, reached):
    cell = next(budget_cells(FULL))
    row = budget_row(cell, {"log_Z_hat_mean": log_Z_hat, "ess_percent": ess})
    assert row["reached"] is reached and row["particle_moves"] == 36 * 7 * 4000
