"""Several processes that run one program together, on one machine or on many.

All of them call the same functions in the same order. The first one prints and writes files. What
depends on a clock or on a signal is decided by all together (`agree`), or they would wait for each
other for ever. It refuses to start processes: that is the launcher's.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np
from jax.experimental import multihost_utils

from nestedvi.errors import LostProcessError

__all__ = ["agree", "is_first", "num_processes", "one_sentence_if_lost", "start"]

_ADDRESS, _NUMBER, _INDEX = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
# A process that failed must not keep the others waiting for its goodbye.
_SHUTDOWN_SECONDS, _HEARTBEAT_SECONDS = 20, 30
# What errors of the runtime say when the other side is gone; it raises them as several classes.
_SIGNS = ("Gloo", "NCCL", "Connection reset", "UNAVAILABLE", "DEADLINE_EXCEEDED", "heartbeat")


def start() -> None:
    """Joins the processes of this program; call it before anything of JAX.

    Slurm, Open MPI, Kubernetes and cloud TPUs say by themselves who takes part. Elsewhere set
    JAX_COORDINATOR_ADDRESS (host:port of the first process), JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    """
    number, index = os.environ.get(_NUMBER), os.environ.get(_INDEX)
    if (number is None) != (index is None) or (number and _ADDRESS not in os.environ):
        raise ValueError(
            f"Of {_ADDRESS}, {_NUMBER} and {_INDEX} only some are set; set all three, or none under"
            " a launcher that JAX knows (Slurm, Open MPI, Kubernetes)."
        )
    try:
        jax.distributed.initialize(
            num_processes=None if number is None else int(number),
            process_id=None if index is None else int(index),
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"The processes did not find each other: {str(error).splitlines()[0]} Under a launcher"
            " that JAX does not know (it knows Slurm, Open MPI, Kubernetes) set"
            f" {_ADDRESS}=host:port, {_NUMBER} and {_INDEX} for every process."
        ) from error


def num_processes() -> int:
    """How many there are; one unless `start` was called."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_first() -> bool:
    """Whether this process prints and writes."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def agree(stop: bool, *numbers: float) -> tuple[bool, tuple[float, ...]]:
    """Whether any process wants to stop, and the numbers of the first one, in all of them."""
    if num_processes() == 1:
        return stop, numbers
    rows = np.asarray(multihost_utils.process_allgather(np.array([float(stop), *numbers])))
    return bool(rows[:, 0].any()), tuple(float(x) for x in rows[0, 1:])


@contextmanager
def one_sentence_if_lost(goes_on: str) -> Iterator[None]:
    """Turns what a runtime says when another process is gone into one sentence, which ends with
    `goes_on`.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if num_processes() == 1 or not any(sign in str(error) for sign in _SIGNS):
            raise
        raise LostProcessError(
            f"Process {jax.process_index()} of {num_processes()} lost another one: it ended or"
            f" cannot be reached ({str(error).splitlines()[0][:200]}). {goes_on}"
        ) from error
