"""The grid's cells: one for every combination, names for files, and what tells results apart."""

from dataclasses import replace

from nestedvi.grid.cells import fingerprint
from nestedvi.paper.bgmm_vae.cells import cells_of
from tests.helpers.small_bgmm import CONFIG


def test_every_combination_has_a_cell():
    config = replace(CONFIG, datasets=("mnist", "fashion-mnist"), variants=("", "decay=true"))
    cells = list(cells_of(config))
    assert len({cell.name for cell in cells}) == len(cells) == 2 * 2 * 2
    assert [cell.settings.decay for cell in cells] == [False, True] * 4
    assert [cell.label for cell in cells[:2]] == ["NVI", "NVI (decay=true)"]


def test_names_are_names_of_files():
    cell = next(cells_of(replace(CONFIG, variants=("rate_rest=1e-2, decay=true",))))
    assert cell.name == "mnist-nvi-rate_rest=1e-2__decay=true-test"


def test_another_configuration_is_another_cell():
    """And which other cells are asked for is not part of a cell."""
    configs = (
        CONFIG,
        replace(CONFIG, seed=1),
        replace(CONFIG, variants=("rate_rest=1e-2",)),
        replace(CONFIG, split="validation"),
    )
    marks = [fingerprint(next(cells_of(config)).content) for config in configs]
    assert len(set(marks)) == 4
    assert fingerprint(next(cells_of(replace(CONFIG, methods=("nvi",)))).content) == marks[0]


def test_a_new_setting_at_its_default_leaves_finished_cells_valid():
    """A cell's content names only what differs from the defaults."""
    cell = next(cells_of(replace(CONFIG, methods=("nvi-printed",), variants=("",))))
    assert cell.content["settings"] == {}
    assert replace(cell, settings=replace(cell.settings, neighbours=1.0)).content["settings"] == {
        "neighbours": 1.0
    }


def test_trials_leave_iterations_for_the_chosen():
    """Five candidates of 8% of 40 steps; a row without candidates spends nothing."""
    nvi, rws = cells_of(CONFIG)
    assert (nvi.trial_iterations, nvi.spent_iterations) == (3, 15)
    assert (rws.trial_iterations, rws.spent_iterations) == (0, 0)


def test_the_cost_counts_passes_through_the_networks():
    """An image goes through the encoder once, and through the decoder, forwards and backwards, for
    every sample.
    """
    nvi, rws = cells_of(CONFIG)
    images = 40 * 2 * 2 * 3
    assert (nvi.cost, rws.cost) == (images * 3, images * 21)
