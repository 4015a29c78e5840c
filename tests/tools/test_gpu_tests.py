"""The runner of the tests on a GPU: what it runs and what it counts."""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from gpu_tests import ROOT, counts, groups, without_paths


def test_every_file_is_in_one_group_and_the_largest_come_first(tmp_path):
    files = [tmp_path / f"test_{i}.py" for i in range(7)]
    for i, file in enumerate(files):
        file.write_text("#" * i)
    split = groups(files, 3)
    assert [len(group) for group in split] == [3, 3, 1]
    assert [file for group in split for file in group] == files[::-1]


def test_counts_are_summed_over_the_last_lines_alone():
    outputs = [
        "9 failed is what a test printed\n2 passed, 1 skipped, 3 deselected in 1.00s",
        "1 failed, 4 passed, 2 errors in 2.00s",
        "",
    ]
    assert counts(outputs) == Counter(passed=6, skipped=1, deselected=3, failed=1, error=2)


def test_a_log_has_no_paths_of_its_machine():
    said = f"{ROOT}/tests/test_x.py:1\n{sys.prefix}/lib/jax.py:2\n{Path.home()}/.cache"
    assert without_paths(said) == "./tests/test_x.py:1\n<python>/lib/jax.py:2\n~/.cache"
