"""Examples run with small arguments, and the code blocks of the README and the guide run as they
are written.
"""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALL = {
    "ring.py": ["--steps", "20"],
    "state_space.py": ["--particles", "200"],
    "program.py": ["--steps", "20"],
    "eight_schools.py": [],
    "two_modes.py": ["--method", "smc"],
    "model_choice.py": ["--method", "smc"],
}


def test_every_example_is_listed():
    assert {p.name for p in (ROOT / "examples").glob("*.py")} == SMALL.keys()


# What trains, or answers for a whole model, compiles for ten seconds to half a minute.
_SLOW = {"ring.py", "program.py", "eight_schools.py", "two_modes.py", "model_choice.py"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in _SLOW else n for n in SMALL]
)
def test_example(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, *SMALL[name]])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert "±" in printed
    with_truth = re.findall(r"= (-?\d+\.\d+) ± (\d+\.\d+) \(exact (-?\d+\.\d+)\)", printed)
    for value, error, exact in with_truth:
        assert (
            float(error) < 0.3 and abs(float(value) - float(exact)) < 4.5 * float(error) + 1e-4
        ), printed
    assert len(with_truth) == {"eight_schools.py": 1, "two_modes.py": 1, "model_choice.py": 3}.get(
        name, 0
    )
    if name == "two_modes.py":
        stuck, exact, found, error = map(
            float,
            re.findall(r"= (\d\.\d+) \(exact (\d\.\d+)\)\D+= (\d\.\d+) ± (\d\.\d+)", printed)[0],
        )
        assert stuck in (0.0, 1.0), "the chain never left its mode"
        assert 0.5 < exact < 0.7 and abs(found - exact) < 4.5 * error
    if name == "state_space.py":
        exact, *estimates = re.findall(r"log p\(x\) = (-?\d+\.\d+)(?: ± (\d+\.\d+))?", printed)
        for value, error in estimates:
            assert abs(float(value) - float(exact[0])) < 4.5 * float(error)


_PAGES = ["README.md", "docs/guide.md"]
_SLOW_PAGES = ["docs/own-model.md", "docs/known-methods.md"]


@pytest.mark.parametrize(
    "page", [*_PAGES, *(pytest.param(page, marks=pytest.mark.slow) for page in _SLOW_PAGES)]
)
def test_code_blocks(page):
    """Blocks of one page share their names, as a reader would type them one after the other."""
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert blocks
    source = (
        "\n".join(blocks)
        .replace("num_steps=5_000", "num_steps=20")
        .replace("num_steps=100,", "num_steps=5,")
        .replace("progress=True", "progress=False")
    )
    # The learned base takes most of its time in the compiler, and the examples have it once.
    source = source.replace("dim=2)", 'dim=2, method="smc")').replace(
        "model_args=(x, y))", 'model_args=(x, y), method="smc")'
    )
    exec(
        compile("import jax, jax.numpy as jnp\nimport nestedvi as nvi\n" + source, page, "exec"),
        {"__name__": page},
    )


def test_the_page_shows_the_example_as_it_is():
    """Indented code under "Examples" is the script's own, line for line."""
    shown = (ROOT / "docs" / "own-model.md").read_text(encoding="utf-8").split("## Examples")[1]
    code = [line[4:] for line in shown.splitlines() if line.startswith("    ")]
    script = (ROOT / "examples" / "two_modes.py").read_text(encoding="utf-8").splitlines()
    assert len(code) > 10 and [line for line in code if line not in script] == []


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]))
def test_links_lead_somewhere(page):
    """Every relative link and picture of a page exists."""
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
