"""Checkpoints: arrays and JSON through orbax, never code; written atomically, verified when read.

A checkpoint is a list of arrays (a pytree's leaves in order), a digest of each, and a fingerprint
of the configuration that made it. Orbax writes into a temporary folder and renames it, so that a
process killed in mid-write leaves the earlier checkpoints whole; the digests catch what the disk
did afterwards.
"""

import hashlib
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jaxtyping import PyTree

from nestedvi.devices import to_host
from nestedvi.errors import CheckpointError, NestedviWarning

__all__ = ["Checkpoints"]

_KEPT = 3


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(
        np.ascontiguousarray(array).tobytes() + str((array.dtype, array.shape)).encode()
    ).hexdigest()


def _digest_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Checkpoints:
    """The checkpoints of one training, in one folder."""

    def __init__(self, folder: str | Path, fingerprint: dict[str, Any]):
        self.folder = Path(folder).absolute()
        self.fingerprint = json.loads(json.dumps(fingerprint))
        # Orbax reports every save at INFO and every missing optional feature at WARNING; neither
        # helps a user.
        logging.getLogger("absl").setLevel(logging.ERROR)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            options = ocp.CheckpointManagerOptions(
                max_to_keep=_KEPT,
                create=True,
                enable_async_checkpointing=False,
                cleanup_tmp_directories=True,
            )
            self._manager = ocp.CheckpointManager(self.folder, options=options)
        except OSError as error:
            raise CheckpointError(
                f"Cannot write checkpoints to {self.folder}: {error}. Choose another folder."
            ) from error

    def save(self, step: int, tree: PyTree) -> None:
        """Writes the arrays of `tree`; returns when they are on disk. A step that is there already
        is left alone.
        """
        if step in self._manager.all_steps():
            return
        # An array that lies on several machines is written by all of them, each its own part.
        arrays = [
            x if isinstance(x, jax.Array) and not x.is_fully_addressable else np.asarray(x)
            for x in jax.tree.leaves(tree)
        ]
        # An empty array cannot be stored; its shape is in the fingerprint's template.
        state = {f"{i:05d}": x for i, x in enumerate(arrays) if x.size}
        meta = {
            "fingerprint": self.fingerprint,
            "fingerprint_digest": _digest_json(self.fingerprint),
            "digests": {name: _digest(to_host(x)) for name, x in state.items()},
        }
        try:
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(meta)
                ),
            )
            self._manager.wait_until_finished()
        except OSError as error:
            raise CheckpointError(
                f"Cannot write the checkpoint of step {step} to {self.folder}: {error}."
            ) from error

    def restore(self, template_for: Any) -> tuple[int, PyTree] | None:
        """The newest readable checkpoint, or None if there is none; says so when a damaged one had
        to be passed over.

        `template_for(step)` gives a pytree of arrays with the structure, shapes and dtypes that the
        state has at that step.
        """
        damaged = []
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                tree = self._restore_step(step, template_for(step))
            except CheckpointError:
                raise
            except Exception as error:
                # Whatever a damaged file makes the reader raise: the earlier checkpoint is the
                # answer to all of it.
                damaged.append(f"step {step} ({type(error).__name__})")
                continue
            if damaged:
                warnings.warn(
                    f"Damaged checkpoint in {self.folder}: {', '.join(damaged)}. Going on from step"
                    f" {step}, the last good one.",
                    NestedviWarning,
                    stacklevel=2,
                )
            # Steps after the good one will be written again.
            for bad in [s for s in self._manager.all_steps() if s > step]:
                self._manager.delete(bad)
            return step, tree
        if damaged:
            raise CheckpointError(
                f"No checkpoint in {self.folder} can be read ({', '.join(damaged)}). Delete the"
                " folder to start again."
            )
        return None

    def _restore_step(self, step: int, template: PyTree) -> PyTree:
        meta = self._manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))[
            "meta"
        ]
        # A damaged fingerprint must not pass for another configuration's.
        if _digest_json(meta["fingerprint"]) != meta["fingerprint_digest"]:
            raise ValueError("the fingerprint does not match its digest")
        self._check_fingerprint(meta["fingerprint"])
        leaves, structure = jax.tree.flatten(template)
        leaves = [np.asarray(x) for x in leaves]
        wanted = {f"{i:05d}": x for i, x in enumerate(leaves) if x.size}
        if wanted.keys() != meta["digests"].keys():
            raise ValueError("arrays are missing")
        args = ocp.args.Composite(state=ocp.args.StandardRestore(wanted))
        state = {
            name: np.asarray(x)
            for name, x in self._manager.restore(step, args=args)["state"].items()
        }
        for name, x in state.items():
            if _digest(x) != meta["digests"][name]:
                raise ValueError(f"array {name} does not match its digest")
        return jax.tree.unflatten(
            structure, [state.get(f"{i:05d}", x) for i, x in enumerate(leaves)]
        )

    def _check_fingerprint(self, stored: dict[str, Any]) -> None:
        keys = [
            k for k in {**self.fingerprint, **stored} if self.fingerprint.get(k) != stored.get(k)
        ]
        if keys:
            differences = "; ".join(
                f"{k}: here {self._short(self.fingerprint, k)}, there {self._short(stored, k)}"
                for k in sorted(keys)
            )
            raise CheckpointError(
                f"The checkpoint in {self.folder} belongs to another configuration ({differences})."
                " Use another folder, or delete this one to start again."
            )

    @staticmethod
    def _short(entries: dict[str, Any], key: str) -> str:
        text = json.dumps(entries.get(key))
        return text if len(text) < 60 else text[:57] + "…"

    def close(self) -> None:
        """Releases the folder."""
        self._manager.close()
