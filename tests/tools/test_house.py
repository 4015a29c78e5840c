"""How easy the library is to read: limits on what `tools/house.py` counts, and that it counts
right.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import house
import nestedvi as nvi
from nestedvi.arguments import check_whole
from nestedvi.divergences.f import get_divergence

MOST_LINES, MOST_CODE, MOST_ROOT_NAMES = 350, 50, 65


def test_modules_functions_and_lines_are_short():
    texts = house.modules()
    assert len(texts) > 200
    assert {name for name, text in texts.items() if text.count("\n") > MOST_LINES} == set()
    long = {function.where for function in house.functions(texts) if function.lines > MOST_CODE}
    assert long == set()
    assert house.long_lines(house.all_code()) == []


def test_no_passage_stands_in_two_places():
    assert house.passages(house.modules()) == []


def test_the_root_has_few_names():
    assert house.root_names() == list(nvi.__all__)
    assert len(house.root_names()) <= MOST_ROOT_NAMES


def test_the_table_has_a_row_for_each_of_them():
    rows = dict(house.static_rows())
    assert rows["root names"] == str(len(nvi.__all__))
    assert rows["lines over 100 columns"] == rows["passages of 10 lines in two places"] == "0"


def test_passages_are_seen_across_and_inside_of_files():
    """Twelve lines in two files are one passage, whatever their indentation and the comments
    between them; nine lines are none, and neither are imports and lists of exports.
    """
    twelve = "".join(f"x{i} = {i}\n" for i in range(12))
    inside = "def f():\n" + "".join(f"    x{i} = {i}\n    # {i}\n" for i in range(12))
    assert house.passages({"a.py": twelve, "b.py": inside}) == [("a.py:1", "b.py:2")]
    assert house.passages({"a.py": twelve + "y = 0\n" + twelve}) == [("a.py:1", "a.py:14")]
    nine = "".join(twelve.splitlines(keepends=True)[:9])
    assert house.passages({"a.py": nine + "y = 0\n", "b.py": nine + "z = 0\n"}) == []
    names = "".join(f"import m{i}\n" for i in range(12)) + "__all__ = [\n" + '    "a",\n' * 12
    assert house.passages({"a.py": names + "]\n", "b.py": names + "]\n"}) == []


def test_lines_of_a_function_are_those_of_its_code():
    docstring = '    """One.\n\n    Two.\n    """\n'
    text = f"def f(\n    x,\n):\n{docstring}    return x\n\n\ndef g():\n    pass\n"
    assert house.functions({"a.py": text}) == [(4, "a.py f"), (2, "a.py g")]


def test_columns_are_those_on_the_screen():
    assert house.long_lines({"a.py": "x" * 101 + "\n" + "x" * 100 + "\n" + "q̂" * 100}) == ["a.py:1"]


def test_a_walk_is_what_is_called():
    """The functions that run, and those that they call in other modules; checks of arguments come
    before all packages.
    """
    walk = house.follow(lambda: get_divergence("forward-kl"))
    assert walk.deepest == ("nestedvi.divergences.f",) and walk.changes == 0
    walk = house.follow(lambda: nvi.Objective("forward-kl"))
    assert walk.main_line == {"nestedvi.train.objective", "nestedvi.divergences.f"}
    assert walk.deepest == ("nestedvi.train.objective", "nestedvi.divergences.f")
    walk = house.follow(lambda: check_whole("num_steps", 3))
    assert walk.modules == {"nestedvi.arguments"} and not walk.main_line and walk.changes == 0


@pytest.mark.slow
def test_training_passes_through_few_modules():
    """In a process of its own: a program that is compiled already would be passed over."""
    walk = house.walk_apart("nvi.fit")
    assert {"nestedvi.train.fit", "nestedvi.train.loop", "nestedvi.sampler.level"} <= walk.modules
    assert not any(name.startswith("nestedvi.paper") for name in walk.modules)
    assert len(walk.main_line) <= 21 and walk.changes <= 20


# What reads a NumPyro model: a part of its own, that a log density does not pass through.
READS_MODELS = {
    f"nestedvi.densities.{name}"
    for name in ("model_calls", "model_checks", "noncentred", "numpyro_model")
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "smc"])
@pytest.mark.parametrize("given", ["log_density", "model"])
def test_sampling_passes_through_few_modules(given, method):
    walk = house.walk_apart(f"nvi.sample({given}, method='{method}')")
    assert {"nestedvi.inference.sample", "nestedvi.inference.search"} <= walk.modules
    assert walk.modules & READS_MODELS == (READS_MODELS if given == "model" else set())
    assert len(walk.main_line - READS_MODELS) <= 18 and walk.changes <= 18
