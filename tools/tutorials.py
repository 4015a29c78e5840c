"""Runs the tutorials and writes their pages.

    python tools/tutorials.py            # those whose script changed since their page was written
    python tools/tutorials.py --all
    python tools/tutorials.py --check    # runs nothing; fails if a page is older than its script

A tutorial is a script in docs/tutorials (docs/how-it-works.py is another): text after
`# %% [markdown]`, code after `# %%`. Its page has the text, the code, what the code prints, and the
figure that a cell ends with. A page records a digest of its script and of the library's version, so
that nothing runs twice; pages and figures are kept in the repository, and a fresh clone builds the
site without running anything.
"""

import argparse
import ast
import contextlib
import hashlib
import io
import os
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"


class Cell(NamedTuple):
    """A piece of a tutorial: text, or code."""

    is_text: bool
    source: str


def scripts() -> list[Path]:
    """All tutorials in the order of their names, and the page on how it works."""
    return [*sorted(FOLDER.glob("*.py")), FOLDER.parent / "how-it-works.py"]


def digest(script: Path) -> str:
    """Of everything that decides what a page says: the script and the library's version."""
    from nestedvi import __version__

    text = script.read_text(encoding="utf-8")
    return hashlib.sha256(f"{__version__}\n{text}".encode()).hexdigest()[:16]


def is_stale(script: Path) -> bool:
    """Whether the page is missing, or was made from another script or version."""
    page = script.with_suffix(".md")
    if not page.exists():
        return True
    return f"digest {digest(script)} " not in page.read_text(encoding="utf-8").splitlines()[0]


def cells_of(source: str) -> list[Cell]:
    """The cells of a script, in order; what comes before the first mark is not shown."""
    parts = re.split(r"^# %%(.*)$", source, flags=re.MULTILINE)[1:]
    cells = []
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        is_text = mark.strip() == "[markdown]"
        if is_text:
            lines = body.strip().splitlines()
            body = "\n".join(re.sub(r"^# ?", "", line) for line in lines)
        cells.append(Cell(is_text, body.strip()))
    return [cell for cell in cells if cell.source]


def execute(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Runs one cell: what it printed, and the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}")
        exec(compile(tree, "<tutorial>", "exec"), names)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<tutorial>", "eval"), names)
    return printed.getvalue(), value


def write_page(script: Path, folder: Path) -> Path:
    """Runs a tutorial in this process and writes its page and figures into `folder`."""
    import jax
    from matplotlib.figure import Figure

    from nestedvi import __version__

    names, lines = {"__name__": "__main__"}, []
    pictures: dict[str, bytes] = {}
    for cell in cells_of(script.read_text(encoding="utf-8")):
        if cell.is_text:
            lines.append(cell.source)
            continue
        printed, value = execute(cell.source, names)
        lines.append(f"```python\n{cell.source}\n```")
        if value is not None and not isinstance(value, Figure):
            printed += f"{value}\n"
        if printed:
            lines.append(f"```text\n{printed.rstrip()}\n```")
        if isinstance(value, Figure):
            name, file = f"{script.stem}-{len(pictures) + 1}.png", io.BytesIO()
            value.savefig(file, dpi=110, bbox_inches="tight", metadata={"Software": None})
            pictures[name] = file.getvalue()
            title = value.get_suptitle() or value.axes[0].get_title() or "figure"
            lines.append(f"![{title}]({name})")
    head = f"<!-- digest {digest(script)} of {script.name}; written by tools/tutorials.py -->"
    where = script.relative_to(FOLDER.parents[1]).as_posix()
    foot = (
        f"*`{where}`, run on {jax.devices()[0].platform} with nestedvi {__version__} and JAX"
        f" {jax.__version__}.*"
    )
    # Nothing is touched before all has run.
    for old in folder.glob(f"{script.stem}-*.png"):
        old.unlink()
    for name, content in pictures.items():
        (folder / name).write_bytes(content)
    page = folder / f"{script.stem}.md"
    page.write_text("\n\n".join([head, *lines, foot]) + "\n", encoding="utf-8")
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="names of tutorials; all that are stale if none")
    parser.add_argument("--all", action="store_true", help="also those that are not stale")
    parser.add_argument("--check", action="store_true", help="run nothing, fail if one is stale")
    parser.add_argument("--out", type=Path, help="where pages are written; beside their scripts")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    chosen = [path for path in scripts() if not args.names or path.stem in args.names]
    if args.check:
        stale = [path.name for path in chosen if is_stale(path)]
        print(f"stale: {', '.join(stale)}; run make docs" if stale else "no tutorial is stale")
        return bool(stale)
    for script in chosen:
        if not (args.all or args.names or is_stale(script)):
            continue
        if args.here:
            write_page(script, args.out or script.parent)
            continue
        # A process each: what one compiles or sets does not matter to the next.
        began = time.perf_counter()
        out = str(args.out or script.parent)
        command = [sys.executable, __file__, "--here", "--out", out, script.stem]
        subprocess.run(command, check=True, env={**os.environ, "COLUMNS": "80"})
        print(f"{script.stem}: {time.perf_counter() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
