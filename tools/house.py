"""Measures how easy the library is to read, and prints a table.

    python tools/house.py            # everything; minutes, since it runs six small problems
    python tools/house.py --static   # what needs no run; seconds

A walk is a call that a reader follows: its modules are those of the library whose functions run. It
is measured by running the call on a tiny problem under a profiler, each in a process of its own, so
that nothing is compiled before. What is in the table is counted, not judged; the limits are in
`tests/tools/test_house.py`.
"""

import argparse
import ast
import inspect
import json
import subprocess
import sys
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeGuard

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "nestedvi"
PASSAGE, COLUMNS = 10, 100
# Modules that come before all packages: a reader passes over checks of arguments and the like.
BEFORE_ALL = frozenset(
    f"nestedvi.{path.stem}"
    for path in SOURCE.glob("*.py")
    if path.stem not in ("__init__", "__main__", "methods")
)
# The row that has every part of a row, and the smallest problem on which all of it runs.
TINY_HMM: dict[str, Any] = dict(
    rows=("recursion-em-refresh",),
    num_steps=4,
    refresh_every=2,
    width=2,
    train_instances=4,
    test_instances=2,
    references=1,
    particles=8,
    iterations=2,
    train_particles=4,
    batch_size=2,
    shown=(0,),
    at_once=2,
    reference_particles=50,
    reference_moves=2,
    reference_runs=2,
    reference_rounds=1,
    measure_cost=False,
    series=1,
    series_steps=3,
    series_iterations=2,
    series_particles=8,
    series_batches=4,
)


class Function(NamedTuple):
    """A function and its lines of code; those of its docstring are not counted."""

    lines: int
    where: str


class Walk(NamedTuple):
    """The modules that a call passes through, and the chain of calls with the most changes of
    module, from the outermost in.
    """

    modules: frozenset[str]
    deepest: tuple[str, ...]

    @property
    def main_line(self) -> frozenset[str]:
        """The modules without those that come before all packages."""
        return self.modules - BEFORE_ALL

    @property
    def changes(self) -> int:
        """Changes of module on the deepest chain of calls."""
        return max(len(self.deepest) - 1, 0)


def modules(folder: Path = SOURCE) -> dict[str, str]:
    """The text of every module below a folder."""
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }


def functions(texts: dict[str, str]) -> list[Function]:
    """All functions, the longest first."""
    found = []
    for name, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(Function(_code_lines(node), f"{name} {node.name}"))
    return sorted(found, reverse=True)


def _code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    docstring = node.body[0] if ast.get_docstring(node) is not None else None
    return _num_lines(node) - (0 if docstring is None else _num_lines(docstring))


def _num_lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def passages(texts: dict[str, str], length: int = PASSAGE) -> list[tuple[str, str]]:
    """Pairs of places that share `length` lines or more, longest run once. Blank lines,
    comments, imports and lists of exports do not count; indentation does not matter.
    """
    lines = [(f"{name}:{i}", line) for name, text in texts.items() for i, line in _counted(text)]
    first: dict[tuple[str, ...], int] = {}
    pairs, last = [], (-2, -2)
    for i in range(len(lines) - length + 1):
        here = tuple(line for _, line in lines[i : i + length])
        if lines[i][0].partition(":")[0] != lines[i + length - 1][0].partition(":")[0]:
            continue
        before = first.setdefault(here, i)
        if before + length <= i:
            if last != (before - 1, i - 1):
                pairs.append((lines[before][0], lines[i][0]))
            last = before, i
    return pairs


def _counted(text: str) -> Iterator[tuple[int, str]]:
    names = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_export(node)
        for line in range(node.lineno, node.lineno + _num_lines(node))
    }
    for i, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and i not in names:
            yield i, stripped


def _is_export(node: ast.AST) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def long_lines(texts: dict[str, str], columns: int = COLUMNS) -> list[str]:
    """The places of lines with more columns."""
    return [
        f"{name}:{i}"
        for name, text in texts.items()
        for i, line in enumerate(text.splitlines(), 1)
        # A mark over a letter has no column of its own.
        if sum(not unicodedata.combining(letter) for letter in line) > columns
    ]


def all_code() -> dict[str, str]:
    """Every Python file whose lines are limited; the text of tutorials is not."""
    folders = ("src", "tests", "tools", "benchmarks", "examples")
    return {f"{name}/{at}": x for name in folders for at, x in modules(ROOT / name).items()}


def root_names() -> list[str]:
    """The names at the root of the library."""
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    (names,) = (node.value for node in tree.body if _is_export(node))
    return ast.literal_eval(names)


def follow(call: Callable[[], Any]) -> Walk:
    """The modules of the library whose functions run during a call, also in its threads. Code that
    runs when a module is imported is none of them.
    """
    names = {
        str(path): ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for path in SOURCE.rglob("*.py")
    }
    seen: set[str] = set()
    deepest: tuple[str, ...] = ()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal deepest
        if event != "call" or frame.f_code.co_filename not in names:
            return
        chain = _chain(frame, names)
        if chain:
            seen.add(names[frame.f_code.co_filename])
            deepest = max(deepest, chain, key=len)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return Walk(frozenset(seen), deepest)


def _chain(frame: FrameType, names: dict[str, str]) -> tuple[str, ...]:
    """The modules of the calls that led here, repeats and those before all packages left out; of
    code that an import runs, none.
    """
    inward: list[str] = []
    at: FrameType | None = frame
    while at is not None:
        name = names.get(at.f_code.co_filename)
        if name is not None and not _is_function(at):
            return ()
        if name is not None and name not in BEFORE_ALL and inward[-1:] != [name]:
            inward.append(name)
        at = at.f_back
    return tuple(reversed(inward)) or ("",)


def _is_function(frame: FrameType) -> bool:
    """Bodies of modules and classes run when they are imported, and call decorators."""
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)


def _fit() -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    import nestedvi as nvi

    key, initial = jax.random.key(0), nvi.DiagonalNormal(jnp.zeros(2), 5.0)
    built = nvi.build(key, "nvir-star", target=nvi.targets.ring(), initial=initial, num_levels=3)
    return lambda: nvi.fit(key, *built, num_steps=2, num_particles=8)


def _sample(method: str) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    import nestedvi as nvi

    def log_density(z: Any) -> Any:
        return -0.5 * jnp.sum((z - 1.0) ** 2) - 0.1 * jnp.sum(z**4)

    return lambda: nvi.sample(
        jax.random.key(0), log_density, dim=2, method=method, num_particles=200
    )


def _sample_model(method: str) -> Callable[[], Any]:
    import jax
    import numpyro
    import numpyro.distributions as dist

    import nestedvi as nvi

    def model(y: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, scale), obs=y)

    y = jax.random.normal(jax.random.key(1), (20,))
    return lambda: nvi.sample(
        jax.random.key(0), model, model_args=(y,), method=method, num_particles=200
    )


def _reproduce_hmm() -> Callable[[], Any]:
    from nestedvi.paper.hmm.config import HMMConfig
    from nestedvi.paper.hmm.run import reproduce_hmm

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            reproduce_hmm(HMMConfig(**TINY_HMM), folder)

    return run


# Each sets up a tiny problem, and returns the call that is followed.
WALKS: dict[str, Callable[[], Callable[[], Any]]] = {
    "nvi.fit": _fit,
    "nvi.sample(log_density, method='auto')": lambda: _sample("auto"),
    "nvi.sample(log_density, method='smc')": lambda: _sample("smc"),
    "nvi.sample(model, method='auto')": lambda: _sample_model("auto"),
    "nvi.sample(model, method='smc')": lambda: _sample_model("smc"),
    "reproduce hmm": _reproduce_hmm,
}


def walk_apart(name: str) -> Walk:
    """A walk in a process of its own: what is compiled already is not called."""
    done = subprocess.run(
        [sys.executable, __file__, "--walk", name], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    seen, deepest = json.loads(done.stdout.splitlines()[-1])
    return Walk(frozenset(seen), tuple(deepest))


def static_rows() -> Iterator[tuple[str, str]]:
    """What can be read off the code."""
    texts = modules()
    lengths = {name: text.count("\n") for name, text in texts.items()}
    longest = max(lengths, key=lengths.__getitem__)
    every = functions(texts)
    twice = passages(texts)
    yield "root names", str(len(root_names()))
    yield "modules", str(len(texts))
    yield "longest module", f"{lengths[longest]} lines ({longest})"
    yield "longest function", f"{every[0].lines} lines ({every[0].where})"
    yield "functions over 40 lines", f"{sum(x.lines > 40 for x in every)} of {len(every)}"
    yield f"passages of {PASSAGE} lines in two places", str(len(twice))
    yield from ((f"  {i}", f"{a} and {b}") for i, (a, b) in enumerate(twice, 1))
    yield f"lines over {COLUMNS} columns", str(len(long_lines(all_code())))


def walk_rows() -> Iterator[tuple[str, str]]:
    """What the walks pass through."""
    for name in WALKS:
        walk = walk_apart(name)
        own = sum(at.startswith("nestedvi.paper.") for at in walk.modules)
        inside = f", {own} of them in the experiment's folder," if own else ""
        before = len(walk.modules - walk.main_line)
        yield (
            name,
            f"{len(walk.main_line)} modules{inside} and {before} before all packages;"
            f" {walk.changes} changes of module on the deepest chain of calls",
        )


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How easy the library is to read.")
    parser.add_argument("--static", action="store_true", help="leave the walks out")
    parser.add_argument("--list", action="store_true", help="with --walk: a line a module")
    parser.add_argument("--walk", choices=WALKS, help="one walk, in this process")
    chosen = parser.parse_args(None if arguments is None else [*arguments])
    if chosen.walk:
        # This checkout's library, whichever is installed.
        sys.path.insert(0, str(SOURCE.parent))
        walk = follow(WALKS[chosen.walk]())
        text = (
            "\n".join([*sorted(walk.modules), "", " > ".join(walk.deepest)]) if chosen.list else ""
        )
        print(text or json.dumps([sorted(walk.modules), walk.deepest]))
        return
    for name, value in static_rows():
        print(f"{name:<40} {value}")
    for name, value in () if chosen.static else walk_rows():
        print(f"{name:<40} {value}")


if __name__ == "__main__":
    main()
