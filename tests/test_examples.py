"""What the README, the pages and the examples show is true: examples run with small arguments, code
blocks run as they are written, and every name, file, command and link exists.
"""

import importlib
import importlib.util
import inspect
import re
import runpy
import sys
from pathlib import Path

import pytest
import typer

from nestedvi.cli.main import app

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


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What lies beside the paper's experiments.
READMES = sorted((ROOT / "src").rglob("README.md"))
# Pages whose blocks another test runs.
_ELSEWHERE = {
    "adding-a-part.md": "tests/test_skeletons.py",
    "packages.md": "tests/test_reference.py",
    **{
        path.name: "tests/tools/test_tutorials.py"
        for path in (ROOT / "docs/tutorials").glob("*.md")
    },
    "how-it-works.md": "tests/tools/test_tutorials.py",
}
# Whole answers and trainings: these pages run with the slow tests; names are always checked.
_SLOW_PAGES = {
    "own-model.md",
    "known-methods.md",
    "quickstart.md",
    "coming-from.md",
    "diagnosis.md",
}


def name_of(page):
    """A page as test names have it, without the folder of this machine."""
    return str(page.relative_to(ROOT))


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def with_blocks():
    for page in PAGES:
        if blocks_of(page) and page.name not in _ELSEWHERE:
            marks = [pytest.mark.slow] if page.name in _SLOW_PAGES else []
            yield pytest.param(page, marks=marks, id=page.name)


@pytest.mark.parametrize("page", list(with_blocks()))
def test_code_blocks(page, tmp_path, monkeypatch):
    """Blocks of one page share their names, as a reader would type them one after the other."""
    monkeypatch.chdir(tmp_path)
    source = (
        "\n".join(blocks_of(page))
        .replace("num_steps=5_000", "num_steps=20")
        .replace("num_steps=100,", "num_steps=5,")
        .replace("progress=True", "progress=False")
    )
    # The learned base takes most of its time in the compiler, and the examples have it once.
    source = source.replace("dim=2)", 'dim=2, method="smc")').replace(
        "model_args=(x, y))", 'model_args=(x, y), method="smc")'
    )
    exec(
        compile(
            "import jax, jax.numpy as jnp\nimport nestedvi as nvi\n" + source, page.name, "exec"
        ),
        {"__name__": page.name},
    )


def code_of(page):
    """Everything a page shows as code: blocks, indented lines and spans."""
    text = page.read_text(encoding="utf-8")
    indented = re.findall(r"^    (\S.*)$", text, flags=re.MULTILINE)
    return [*blocks_of(page), *indented, *re.findall(r"`([^`\n]+)`", text)]


def resolves(names):
    """Whether nestedvi.a.b… is a module or an attribute; what lies below a function is its own."""
    thing, path = importlib.import_module("nestedvi"), "nestedvi"
    for name in names:
        path = f"{path}.{name}"
        if not hasattr(thing, name):
            if not inspect.ismodule(thing) or importlib.util.find_spec(path) is None:
                return False
            importlib.import_module(path)
        thing = getattr(thing, name)
    return True


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_on_a_page_exist(page):
    """Every `nvi.a.b` and `nestedvi.a.b` is there, whether or not the code around it is run."""
    for code in code_of(page):
        for dotted in re.findall(r"(?<![\w./-])(?:nvi|nestedvi)(?:\.[A-Za-z_]\w*)+", code):
            assert resolves(dotted.split(".")[1:]), f"{page.name} names {dotted}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_on_a_page_exist(page):
    """A path with a folder is below the repository, the package, or where the page is."""
    below = (ROOT, ROOT / "src" / "nestedvi", page.parent)
    for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
        for path in re.findall(r"(?<!\S)(?:[\w.-]+/)+[\w.*-]+\.(?:py|md|json|png|svg|txt)\b", code):
            assert any(list(folder.glob(path)) for folder in below), f"{page.name} names {path}"


def command_and_options(words):
    """The command that words name, and those of its words that are options."""
    command = typer.main.get_command(app)
    while words and hasattr(command, "commands") and not words[0].startswith("--"):
        assert words[0] in command.commands, f"no command {' '.join(words)}"
        command, words = command.commands[words[0]], words[1:]
    return command, {word.split("=")[0] for word in words if word.startswith("--")}


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=name_of)
def test_commands_on_a_page_exist(page):
    """Every `nestedvi …` is a command, with options that it has."""
    for code in code_of(page):
        if not code.startswith("nestedvi "):
            continue
        words = code.split("#")[0].replace("…", "").split()[1:]
        command, options = command_and_options(words)
        known = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}
        assert options <= known, f"{page.name}: {code}"


def test_the_page_shows_the_example_as_it_is():
    """Indented code under "Examples" is the script's own, line for line."""
    shown = (ROOT / "docs" / "own-model.md").read_text(encoding="utf-8").split("## Examples")[1]
    code = [line[4:] for line in shown.splitlines() if line.startswith("    ")]
    script = (ROOT / "examples" / "two_modes.py").read_text(encoding="utf-8").splitlines()
    assert len(code) > 10 and [line for line in code if line not in script] == []


def anchors_of(page):
    """The headings of a page as links spell them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *PAGES[1:], *READMES], ids=name_of)
def test_links_lead_somewhere(page):
    """Every relative link and picture of a page exists, and so does the heading it leads to."""
    for target, anchor in re.findall(
        r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")
    ):
        if target.startswith("http"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors_of(file), f"{page.name} links to {target}#{anchor}"
