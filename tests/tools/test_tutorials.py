"""The tutorials: their pages are what their scripts give, and all of them run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import tutorials  # noqa: E402

STEMS = [path.stem for path in tutorials.scripts()]


def test_no_page_is_older_than_its_script():
    """`make docs` runs what changed; its pages and figures are kept in the repository."""
    assert [path.name for path in tutorials.scripts() if tutorials.is_stale(path)] == []


@pytest.mark.parametrize("script", tutorials.scripts(), ids=lambda path: path.stem)
def test_a_page_shows_all_of_its_script(script):
    """Every cell is on the page, every figure is there and no file is left over."""
    page = script.with_suffix(".md").read_text(encoding="utf-8")
    for cell in tutorials.cells_of(script.read_text(encoding="utf-8")):
        assert cell.source in page
    figures = re.findall(r"!\[.*?\]\(([^)]+\.png)\)", page)
    assert sorted(figures) == sorted(
        path.name for path in script.parent.glob(f"{script.stem}-*.png")
    )
    assert all((script.parent / name).stat().st_size > 5_000 for name in figures)
    assert "Traceback" not in page and script.name in page


def test_every_tutorial_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    index = (ROOT / "docs" / "tutorials" / "index.md").read_text(encoding="utf-8")
    for path in tutorials.scripts():
        assert f"{path.stem}.md" in navigation
        assert path.stem == "how-it-works" or f"({path.stem}.md)" in index


def test_cells():
    source = '"""Title."""\n\n# %% [markdown]\n# # A\n#\n# b\n# %%\nx = 1\n\nx + 1\n# %%\n'
    assert tutorials.cells_of(source) == [(True, "# A\n\nb"), (False, "x = 1\n\nx + 1")]


def test_a_cell_gives_what_it_prints_and_its_last_value():
    names = {}
    source = "import warnings\nprint(1)\nwarnings.warn('odd', stacklevel=1)\n1 + 1"
    assert tutorials.execute(source, names) == ("1\nwarning: odd\n", 2)
    assert tutorials.execute("y = 3", names) == ("", None) and names["y"] == 3


def test_another_script_or_version_is_stale(tmp_path, monkeypatch):
    script = tmp_path / "a.py"
    script.write_text("# %%\nprint(2)\n")
    assert tutorials.is_stale(script)
    page = script.with_suffix(".md")
    page.write_text(f"<!-- digest {tutorials.digest(script)} of a.py -->\n")
    assert not tutorials.is_stale(script)
    monkeypatch.setattr("nestedvi.__version__", "9.9.9")
    assert tutorials.is_stale(script)
    monkeypatch.undo()
    script.write_text("# %%\nprint(3)\n")
    assert tutorials.is_stale(script)


@pytest.mark.slow
@pytest.mark.parametrize("stem", STEMS)
def test_tutorial(stem, tmp_path):
    """Runs from its first line to its last, in a process of its own."""
    command = [sys.executable, str(ROOT / "tools" / "tutorials.py"), "--out", str(tmp_path), stem]
    subprocess.run(command, check=True)
    assert (tmp_path / f"{stem}.md").exists()
