"""A second process finds what the first one compiled."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, jax, jax.numpy as jnp
from nestedvi.storage.compiled import keep_compiled
print(keep_compiled(sys.argv[1]))
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
jax.jit(lambda x: jnp.sin(x) @ x.T)(jnp.ones((3, 3))).block_until_ready()
print(sum(event.endswith("/cache_hits") for event in hits))
"""


@pytest.mark.slow
def test_programs_are_kept_between_processes(tmp_path):
    folder = tmp_path / "compiled"
    source = str(Path(__file__).parents[2] / "src")

    def go():
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": source, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )
        where, hits = done.stdout.split()
        return where, int(hits)

    first, second = go(), go()
    assert first == (str(folder), 0) and second[0] == str(folder) and second[1] >= 1
    assert any(folder.iterdir())
