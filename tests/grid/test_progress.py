"""Progress over many trainings: cells advance the whole, threads are joined, and a stop reaches
every training.
"""

import io
import os
import threading
import time

import jax
import pytest
from rich.console import Console

from nestedvi.grid import progress
from nestedvi.grid.progress import GridProgress, Task
from nestedvi.progress import Stretch


def quiet():
    return Console(file=io.StringIO(), force_terminal=True, width=120)


def fill_part(reporter, total):
    reporter.start(total, 0)
    for done in range(1, total + 1):
        reporter.update(done, log_Z_hat=2.0, ess_percent=50.0, steps_per_second=10.0)
    reporter.stop()


def fill(cell, total):
    with cell as reporter:
        fill_part(reporter, total)


@pytest.mark.parametrize("jobs", [1, 3])
def test_cells_add_up_to_the_whole(jobs):
    costs = [1.0, 2.0, 5.0]
    with GridProgress(sum(costs), quiet()) as grid:
        grid.each(lambda cost: fill(grid.cell("cell", cost), 4), costs, jobs)
        (whole,) = grid._progress.tasks
        assert whole.completed == pytest.approx(whole.total)


def work_apart(name, folder, reporter):
    """Runs in another process: "bad" fails once another is under way, "endless" goes on until it is
    stopped, others end.
    """
    with reporter:
        if name == "bad":
            while not (folder / "endless began").exists():
                time.sleep(0.01)
            raise ValueError("no")
        reporter.start(4, 0)
        done = 0
        while done < 4:
            done += name != "endless"
            try:
                reporter.update(done, steps_per_second=10.0, ess_percent=50.0)
            except KeyboardInterrupt:
                (folder / "endless saved").touch()
                raise
            (folder / f"{name} began").touch()
        return f"{name} in {os.getpid()}"


def test_processes_of_their_own_report_into_the_same_display(tmp_path):
    tasks = [
        Task(name, cost, (name, tmp_path))
        for name, cost in (("one", 1.0), ("two", 2.0), ("three", 5.0))
    ]
    with GridProgress(8.0, quiet()) as grid:
        results = grid.each_apart(work_apart, tasks, 2)
        (whole,) = grid._progress.tasks
        assert whole.completed == pytest.approx(whole.total)
    assert [result.split()[0] for result in results] == ["one", "two", "three"]
    assert all(result.split()[2] != str(os.getpid()) for result in results)


def test_a_failure_in_one_process_stops_the_others_where_they_save(tmp_path):
    tasks = [Task(name, 1.0, (name, tmp_path)) for name in ("endless", "bad")]
    with GridProgress(2.0, quiet()) as grid, pytest.raises(ValueError, match="no"):
        grid.each_apart(work_apart, tasks, 2)
    assert (tmp_path / "endless saved").exists()


def which_gpu(name, folder, reporter):
    """Runs in another process, until all have begun, so that none does the work of two."""
    (folder / name).touch()
    while len(list(folder.iterdir())) < 3:
        time.sleep(0.01)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_processes_are_spread_over_gpus(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_gpu_names", lambda: ["4", "7"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    tasks = [Task(name, 1.0, (name, tmp_path)) for name in ("one", "two", "three")]
    with GridProgress(3.0, quiet()) as grid:
        assert sorted(grid.each_apart(which_gpu, tasks, 3)) == ["4", "4", "7"]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_without_gpus_nothing_is_chosen():
    # Not in a mark: other processes import this module, and are shown GPUs that there are not.
    if jax.default_backend() == "gpu":
        pytest.skip("there is one")
    assert progress._gpu_names() == []


def test_threads_take_turns_with_devices(monkeypatch):
    """Here twice with the only one there is; which it is, JAX knows in each thread."""
    (device,) = jax.local_devices()
    monkeypatch.setattr(jax, "local_devices", lambda: [device, device])
    seen = []
    with GridProgress(2.0, quiet()) as grid:
        grid.each(lambda item: seen.append((item, jax.config.jax_default_device)), ["a", "b"], 2)
    assert sorted(seen) == [("a", device), ("b", device)]


def test_a_cell_that_was_there_counts_as_done():
    with GridProgress(3.0, quiet()) as grid:
        with grid.cell("old", 3.0):
            pass
        assert grid._progress.tasks[0].completed == pytest.approx(3.0)


def test_a_failure_stops_the_others():
    """One training fails; the other, still running in its thread, is told to stop at its next
    report, where `fit` saves.
    """
    stopped, started = threading.Event(), threading.Event()

    def work(item):
        if item == "bad":
            started.wait(5)
            raise ValueError("no")
        with grid.cell(item, 1.0) as reporter:
            reporter.start(10, 0)
            started.set()
            try:
                while True:
                    reporter.update(1, log_Z_hat=0.0, ess_percent=0.0, steps_per_second=1.0)
            except KeyboardInterrupt:
                stopped.set()
                raise

    with GridProgress(2.0, quiet()) as grid, pytest.raises(ValueError, match="no"):
        grid.each(work, ["good", "bad"], 2)
    assert stopped.is_set()


def test_stretches_fill_a_cell():
    with GridProgress(1.0, quiet()) as grid:
        with grid.cell("two stretches", 1.0) as reporter:
            fill_part(Stretch(reporter, 10, each=2), 3)
            assert grid._progress.tasks[0].completed == pytest.approx(0.6)
            fill_part(Stretch(reporter, 10, before=6), 4)
            assert grid._progress.tasks[0].completed == pytest.approx(1.0)
        assert grid._progress.tasks[0].completed == pytest.approx(1.0)
