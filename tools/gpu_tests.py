"""The tests that are not slow, on the machine's GPU: several processes of pytest side by side.

    python tools/gpu_tests.py --jobs 8 --log results/gpu/test.log

A process takes a few test files. With one process for all, most of the time would be spent on
compilation on one core. It needs nothing but pytest, and the Python that has a JAX for the GPU.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Trying several kernels for each product would take most of the time: a test's program runs once.
_FLAGS = "--xla_gpu_autotune_level=0"
# pytest's code where every test of the files is a slow one.
_NONE_COLLECTED = 5
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed|deselected)\b")


def groups(files: Sequence[Path], size: int) -> list[list[Path]]:
    """Files by threes or so, the largest first, so that the last process is a short one."""
    ordered = sorted(files, key=lambda file: -file.stat().st_size)
    return [list(ordered[i : i + size]) for i in range(0, len(ordered), size)]


def counts(outputs: Iterable[str]) -> Counter[str]:
    """How many tests passed, failed, …, from the last lines of several runs."""
    total: Counter[str] = Counter()
    for output in outputs:
        last = (output.strip().splitlines() or [""])[-1]
        total.update({word.rstrip("s"): int(num) for num, word in _COUNT.findall(last)})
    return total


def without_paths(output: str) -> str:
    """The output with paths of this machine cut short: the log is committed."""
    for folder, name in ((Path(sys.prefix), "<python>"), (ROOT, "."), (Path.home(), "~")):
        output = output.replace(str(folder), name)
    return output


def _run(files: Sequence[Path], timeout: float) -> tuple[int, str]:
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cuda,cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}".strip(),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONPATH": str(ROOT / "src"),
    }
    names = [str(file.relative_to(ROOT)) for file in files]
    # One -q is in pyproject.toml; with two there would be no counts.
    command = [sys.executable, "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, "-rfEs", *names],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        return 1, f"{' '.join(names)}\n{text}\nno end after {timeout:.0f} s: 1 failed"
    return done.returncode, f"{' '.join(names)}\n{done.stdout.strip()}"


def main() -> int:
    """Runs all, writes the log, and returns 0 where none failed."""
    parser = argparse.ArgumentParser(description="The tests on a GPU.")
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time")
    parser.add_argument("--files", type=int, default=3, help="test files of a process")
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds for a process")
    parser.add_argument("--log", type=Path, default=ROOT / "results" / "gpu" / "test.log")
    options = parser.parse_args()
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    head = f"make test-gpu\npython {platform.python_version()} {_device()}\nXLA_FLAGS={_FLAGS}"
    options.log.parent.mkdir(parents=True, exist_ok=True)
    ended: list[tuple[int, str]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        parts = groups(files, options.files)
        tasks = [pool.submit(_run, part, options.timeout) for part in parts]
        for task in as_completed(tasks):
            ended.append(task.result())
            # As it goes, so that what is stopped leaves what it has seen.
            total = counts(said for _, said in ended)
            summary = ", ".join(f"{num} {word}" for word, num in total.items())
            summary += f"; {len(ended)} of {len(parts)} processes"
            text = "\n\n".join([f"{head}\n{summary}", *(said for _, said in ended)])
            options.log.write_text(without_paths(text) + "\n", encoding="utf-8")
    print(f"{head}\n{summary}")
    return 1 if any(code not in (0, _NONE_COLLECTED) for code, _ in ended) else 0


def _device() -> str:
    """The version of JAX and its devices, from a process of its own: this one takes no memory."""
    program = "import jax; print('jax', jax.__version__, jax.devices())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
