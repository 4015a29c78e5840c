"""The grid of the annealing experiment: which cells there are, and how they differ."""

import json
from dataclasses import replace
from pathlib import Path

from nestedvi.grid.cells import fingerprint, recorded
from nestedvi.paper.annealing.beyond import budget_cells, large_k_cells, target_cells
from nestedvi.paper.annealing.cells import table_cells
from nestedvi.paper.annealing.config import AnnealingConfig, quick_config
from nestedvi.paper.annealing.tables import PAPER

PUBLISHED = Path(__file__).parents[3] / "results" / "annealing" / "results.json"
FULL = AnnealingConfig()


def test_the_full_grid_is_the_papers():
    cells = list(table_cells(FULL))
    assert {(c.method, c.K) for c in cells} >= set(PAPER)
    assert [c.K for c in cells if c.method == "svi-flow"] == [2]
    assert [c.K for c in cells if c.method == "vsmc"] == [8]
    assert all(
        c.K * c.particles == 288 and c.iterations == 20_000 and c.restarts == 10 for c in cells
    )


def test_another_configuration_is_another_cell():
    quick = quick_config(AnnealingConfig(methods=("avo",)))
    configs = (quick, replace(quick, iterations=7), replace(quick, seed=1))
    marks = {fingerprint(recorded(next(table_cells(config)))) for config in configs}
    assert len(marks) == 3


def test_published_results_are_those_of_the_configuration():
    """Every published row has the fingerprint of today's cell: no number of it has changed since,
    and whoever kept the cells' files can go on with them.
    """
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    groups = {
        "rows": table_cells,
        "targets": target_cells,
        "large_k": large_k_cells,
        "budget": budget_cells,
    }
    for name, cells in groups.items():
        marks = [fingerprint(recorded(cell)) for cell in cells(FULL)]
        assert [row["fingerprint"] for row in published[name]] == marks
    assert list(published["config"]) == list(recorded(FULL))
