"""The folder layout is a sample's journey: imports point only to earlier stations, and a few things
live in one place only.
"""

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1] / "src" / "nestedvi"
# Stations in one group do not see each other; each sees every earlier group.
ORDER = [
    {"_types", "arguments", "errors", "interrupts", "progress"},
    {"host", "compilation"},
    {"precision", "randomness", "pieces", "devices", "distributed"},
    {"storage"},
    {"plot"},
    {"densities"},
    {"targets"},
    {"paths", "kernels"},
    {"particles"},
    {"sampler"},
    {"divergences"},
    {"fitting"},
    {"smc"},
    {"train"},
    {"methods"},
    {"evaluation"},
    {"inference"},
    {"grid"},
    {"bench"},
    {"paper"},
    {"cli"},
    {"__main__"},
]
RANK = {station: rank for rank, group in enumerate(ORDER) for station in group}
MAY_STOP_GRADIENTS = {"sampler", "divergences", "train", "kernels"}
MOST_LINES, MOST_ROOT_NAMES = 350, 65
# Modules without a test file of their own, and why.
UNTESTED = {
    "_types.py": "names of shapes, which every other test checks by using them",
}
EXTRAS = ("blackjax", "flowjax", "arviz", "sklearn")
MODULES = sorted(ROOT.rglob("*.py"))


def station_of(parts: tuple[str, ...]) -> str:
    """The station of a module from its path below the package: a folder's or a top-level module's
    name.
    """
    return parts[0].removesuffix(".py")


def imported_modules(source: str, package: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Dotted names that a module imports (`from a import b` gives a.b), relative ones resolved
    against its package.
    """
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            names += [(*base, alias.name) for alias in node.names]
    return names


def latest_export() -> str:
    """`import nestedvi` pulls in whatever its `__init__` does, so it counts as the latest of those
    stations.
    """
    names = imported_modules((ROOT / "__init__.py").read_text(), ("nestedvi",))
    return max(
        (name[1] for name in names if name[0] == "nestedvi" and name[1] in RANK),
        key=RANK.__getitem__,
    )


def backward_imports(station: str, source: str, package: tuple[str, ...]) -> list[str]:
    """The imports of a module that do not point to an earlier station (or to its own)."""
    wrong = []
    for name in imported_modules(source, package):
        if name[0] != "nestedvi":
            continue
        seen = name[1] if len(name) > 1 and (len(name) > 2 or name[1] in RANK) else latest_export()
        if seen != station and RANK.get(seen, len(ORDER)) >= RANK[station]:
            wrong.append(".".join(name))
    return wrong


def uses_stop_gradient(source: str) -> bool:
    nodes = list(ast.walk(ast.parse(source)))
    names = {n.id for n in nodes if isinstance(n, ast.Name)} | {
        n.attr for n in nodes if isinstance(n, ast.Attribute)
    }
    names |= {alias.name for n in nodes if isinstance(n, ast.ImportFrom) for alias in n.names}
    return "stop_gradient" in names


def stations() -> list[tuple[str, Path]]:
    return [
        (station_of(path.relative_to(ROOT).parts), path)
        for path in MODULES
        if path != ROOT / "__init__.py"
    ]


def test_every_station_is_known():
    assert {station for station, _ in stations()} <= set(RANK)


def test_imports_point_to_earlier_stations():
    wrong = {}
    for station, path in stations():
        package = ("nestedvi", *path.relative_to(ROOT).parts[:-1])
        if bad := backward_imports(station, path.read_text(), package):
            wrong[str(path.relative_to(ROOT))] = bad
    assert not wrong


@pytest.mark.parametrize(
    ("station", "source", "expected"),
    [
        (
            "kernels",
            "from nestedvi.paths.base import AbstractPath",
            ["nestedvi.paths.base.AbstractPath"],
        ),
        ("paths", "def f():\n    import nestedvi.kernels.base", ["nestedvi.kernels.base"]),
        ("densities", "from ..sampler import level", ["nestedvi.sampler.level"]),
        ("sampler", "from nestedvi import divergences", ["nestedvi.divergences"]),
        ("sampler", "import nestedvi as nvi", ["nestedvi"]),
        ("train", "import nestedvi.unheard_of.thing", ["nestedvi.unheard_of.thing"]),
        (
            "train",
            "from nestedvi.sampler.level import terms\nfrom . import objective\nimport jax",
            [],
        ),
    ],
)
def test_the_import_check_sees_what_it_should(station, source, expected):
    """The check itself: nested, relative and package-level imports are all caught, legal ones are
    not.
    """
    assert backward_imports(station, source, ("nestedvi", station)) == expected


def test_matplotlib_lives_where_figures_are_drawn():
    """In `plot`, and where an experiment or a benchmark draws figures of its own."""
    users = {
        station
        for station, path in stations()
        for name in imported_modules(path.read_text(), ("nestedvi",))
        if name[0] == "matplotlib"
    }
    assert users <= {"plot", "paper", "bench"}


def test_in_training_only_the_loop_knows_files_clocks_and_terminals():
    outside = {
        *("nestedvi.storage", "nestedvi.progress", "nestedvi.interrupts"),
        *("time", "signal", "orbax", "rich"),
    }
    users = {
        path.stem
        for station, path in stations()
        for name in imported_modules(path.read_text(), ("nestedvi", station))
        if station == "train" and {name[0], ".".join(name[:2])} & outside
    }
    assert users == {"loop"}


def imports_of(path: Path) -> set[str]:
    """The library's modules that a file imports, as dotted names."""
    package = ("nestedvi", *path.relative_to(ROOT).parts[:-1])
    return {".".join(name) for name in imported_modules(path.read_text(), package)}


def test_experiments_do_not_import_each_other():
    folders = sorted(path.name for path in (ROOT / "paper").iterdir() if path.is_dir())
    for folder in folders:
        others = tuple(f"nestedvi.paper.{name}." for name in folders if name != folder)
        for path in (ROOT / "paper" / folder).glob("*.py"):
            assert not [name for name in imports_of(path) if name.startswith(others)], path


@pytest.mark.parametrize(
    ("package", "refused"),
    [
        ("evaluation", ("nestedvi.train.",)),
        ("plot", ("nestedvi.densities.", "nestedvi.kernels.", "nestedvi.sampler.")),
        ("fitting", ("nestedvi.sampler.",)),
        ("divergences", ("optax",)),
        ("grid", ("nestedvi.train.", "nestedvi.sampler.", "nestedvi.inference.")),
        ("cli", ("jax", "optax")),
    ],
)
def test_packages_refuse_what_their_docstrings_say(package, refused):
    """Promises that the order of packages alone would not keep."""
    for path in (ROOT / package).rglob("*.py"):
        assert not [name for name in imports_of(path) if f"{name}.".startswith(refused)], path


def test_every_package_says_what_it_refuses():
    """In its docstring, and in the table of docs/design.md."""
    design = (ROOT.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    for package in sorted(path.parent for path in ROOT.glob("*/__init__.py")):
        docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
        assert "refuses" in docstring, package.name
        assert f"`{package.name}`" in design.split("## One particle")[0], package.name


def test_gradients_are_cut_only_where_it_is_allowed():
    assert {
        station for station, path in stations() if uses_stop_gradient(path.read_text())
    } <= MAY_STOP_GRADIENTS


@pytest.mark.parametrize(
    "source",
    [
        "from jax.lax import stop_gradient",
        "import jax\njax.lax.stop_gradient(1)",
        "f = lax.stop_gradient",
    ],
)
def test_the_gradient_check_sees_every_spelling(source):
    assert uses_stop_gradient(source)


def test_every_module_has_its_test_file():
    """src/nestedvi/a/b.py is tested in tests/a/test_b.py; packages themselves hold no logic."""
    tests = Path(__file__).parent
    missing = set()
    for _, path in stations():
        module = path.relative_to(ROOT)
        test = tests / module.parent / f"test_{module.name}"
        if module.name != "__init__.py" and not test.exists():
            missing.add(str(module))
    assert missing == set(UNTESTED)


def test_no_module_is_too_long_to_read():
    lengths = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n")
        for path in MODULES
    }
    assert {name: num for name, num in lengths.items() if num > MOST_LINES} == {}


def test_the_root_has_few_names_and_none_hides_a_package():
    """`import nestedvi.a.b` must reach the package: a root name that is also a folder or module is
    that module.
    """
    package = importlib.import_module("nestedvi")
    assert len(package.__all__) <= MOST_ROOT_NAMES
    folders = {path.stem for path in ROOT.iterdir() if path.is_dir() or path.suffix == ".py"}
    hidden = [
        name
        for name in sorted(folders - {"__init__", "__pycache__"})
        if hasattr(package, name) and not isinstance(getattr(package, name), ModuleType)
    ]
    assert hidden == []


def test_package_init_has_no_logic():
    body = ast.parse((ROOT / "__init__.py").read_text()).body
    assert ast.get_docstring(ast.parse((ROOT / "__init__.py").read_text()))
    for node in body[1:]:
        if isinstance(node, ast.Assign):
            assert [target.id for target in node.targets] in (["__all__"], ["__version__"])
        else:
            assert isinstance(node, ast.Import | ast.ImportFrom), ast.unparse(node)


def test_exported_names_exist_once():
    package = importlib.import_module("nestedvi")
    assert len(set(package.__all__)) == len(package.__all__)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_everything_imports_without_the_extras():
    """blackjax, flowjax, arviz, scikit-learn are extras: neither the package nor any of its modules
    needs them to be imported.
    """
    program = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None
import importlib, pkgutil, nestedvi
for module in pkgutil.walk_packages(nestedvi.__path__, "nestedvi."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_import_touches_no_device_and_leaves_heavy_libraries_alone():
    """A user may still choose devices and precision after `import nestedvi`, and does not wait for
    what only figures, checkpoints or optimisers need.
    """
    program = """
import sys
import nestedvi
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
heavy = {"matplotlib", "orbax", "scipy.optimize", "arviz", "pandas", "sklearn", "blackjax"}
print(*sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT.parent,
        check=True,
    )
    assert done.stdout.split() == []
