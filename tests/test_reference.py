"""The API reference: every public name is in it with a sentence, its arguments and an example that
runs.
"""

import ast
import inspect
import re
from pathlib import Path

import pytest

import nestedvi as nvi

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"
NAMES = [name for name in nvi.__all__ if not inspect.ismodule(getattr(nvi, name))]
PACKAGES = [name for name in nvi.__all__ if inspect.ismodule(getattr(nvi, name))]
IMPORTS = re.findall(r"```python\n(.*?)```", (PAGES / "index.md").read_text(), re.DOTALL)[0]


def doc_of(name):
    if name != "METHODS":
        return inspect.getdoc(getattr(nvi, name))
    # A dictionary has no docstring of its own: it is the text under it.
    body = ast.parse((ROOT / "src" / "nestedvi" / "methods.py").read_text(encoding="utf-8")).body
    (at,) = (
        i
        for i, node in enumerate(body)
        if getattr(node, "target", None) is not None and getattr(node.target, "id", "") == "METHODS"
    )
    return inspect.cleandoc(body[at + 1].value.value)


def example_of(name):
    _, example = doc_of(name).split("Example:\n")
    (block,) = re.findall(r"```python\n(.*?)```", inspect.cleandoc(example), re.DOTALL)
    return block


def run_block(block):
    names = {"__name__": "example"}
    exec(compile(IMPORTS + block, "example", "exec"), names)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_on_one_page(name):
    pages = [
        page.name
        for page in PAGES.glob("*.md")
        if f"\n::: nestedvi.{name}\n" in page.read_text(encoding="utf-8") + "\n"
    ]
    assert len(pages) == 1
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    (row,) = (line for line in index.splitlines() if f"({pages[0]})" in line)
    assert f"`{name}`" in row


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_is_on_a_page(package):
    """Those that are not at the root too are listed under the package, and no others."""
    text = (PAGES / "packages.md").read_text(encoding="utf-8")
    (listed,) = re.findall(rf"::: nestedvi.{package}\n    options:\n      members: \[(.*)\]", text)
    functions = {
        name
        for name in getattr(nvi, package).__all__
        if name not in nvi.__all__ and not name.isupper()
    }
    assert set(listed.split(", ")) == functions
    for name in functions:
        assert inspect.getdoc(getattr(getattr(nvi, package), name)), name


@pytest.mark.parametrize("name", NAMES)
def test_a_sentence_and_every_argument(name):
    doc = doc_of(name)
    assert len(doc.split("\n\n")[0]) > 10
    thing = getattr(nvi, name)
    if "Args:" not in doc:
        # A table, a warning, results, abstract classes: nothing that a user would pass.
        assert name in ("METHODS", "NestedviWarning") or (
            hasattr(thing, "_fields") or not inspect.signature(thing).parameters
        )
        return
    (text,) = re.findall(r"Args:\n((?:    .*\n?|\n)+?)(?=\n\S|\Z)", doc)
    described = re.findall(r"^    (\w+): \S", text, flags=re.MULTILINE)
    assert described == list(inspect.signature(thing).parameters)


# They compile for a second each, and those that train or sample for more.
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs_and_shows_the_name(name):
    block = example_of(name)
    assert f"nvi.{name}" in block or name in ("Evaluation", "Fit", "Posterior", "Run")
    run_block(block)


@pytest.mark.slow
def test_examples_of_the_packages_run():
    text = (PAGES / "packages.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == len(PACKAGES)
    for block in blocks:
        run_block(block)
