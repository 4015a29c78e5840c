"""Which cells a configuration asks for, and what each depends on."""

from dataclasses import replace

from nestedvi.paper.hmm.cells import row_cells, series_cells
from nestedvi.paper.hmm.config import ROWS, HMMConfig

CONFIG = HMMConfig(
    num_steps=4, refresh_every=2, test_instances=3, references=1, width=2, shown=(1,)
)


def test_a_row_runs_its_own_training_or_that_of_another():
    cells = {cell.name: cell for cell in row_cells(CONFIG)}
    assert list(cells) == list(ROWS)
    for name, cell in cells.items():
        assert cell.training.name == (ROWS[name].trained_as or name)
    assert cells["recursion-em-refresh"].training == cells["recursion-em"].training


def test_a_training_does_not_depend_on_how_it_is_tested():
    """Networks are trained once, however many instances and particles they are run with."""
    others = row_cells(replace(CONFIG, particles=7, test_instances=5, refresh_scale=0.1))
    for cell, other in zip(row_cells(CONFIG), others, strict=True):
        assert cell.training == other.training and cell != other


def test_each_filter_learns_more_than_the_one_before():
    cells = series_cells(CONFIG)
    assert [(c.learned, c.heuristic) for c in cells] == [(0, 0), (1, 0), (1, 1)]
    assert {c.series_particles for c in cells} == {CONFIG.series_particles} and len(
        {c.name for c in cells}
    ) == 3
