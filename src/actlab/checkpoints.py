"""Checkpoints that a kill at any moment leaves whole, and that know what was trained."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO

from actlab.errors import ActlabError
from actlab.files import replacing

CONFIG = "actlab"  # the key of a checkpoint under which the record of `actlab.records` stands


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint to a temporary file beside its place, flush it, then rename it.

    Lightning's own writer moves from the system's temporary folder, which is a copy, and so can leave half a
    file, when that is another file system.

    Attributes:
        config: what is trained; kept in every checkpoint where it is known.
    """

    config: Mapping[str, Any] | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Save ``checkpoint`` at the local ``path``; a former file there is replaced in one step."""
        if self.config is not None:
            checkpoint = {**checkpoint, CONFIG: self.config}
        with replacing(Path(path)) as partial, partial.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load tensors and plain values; nothing in the file is run, whatever ``weights_only`` says."""
        return read(path, map_location)


def read(path: str | Path | IO[Any], map_location: Any = "cpu") -> dict[str, Any]:
    """A local checkpoint; only tensors and plain values are loaded.

    Raises:
        ActlabError: for a file that is no checkpoint, or holds other objects.
    """
    try:
        found = torch.load(path, map_location=map_location, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ActlabError(
            f"{str(path)!r} cannot be read as a checkpoint of tensors and plain values: {_first_line(error)}"
        ) from error
    if not isinstance(found, dict) or "state_dict" not in found:
        raise ActlabError(f"{str(path)!r} is no checkpoint of Lightning: it has no 'state_dict'")
    return found


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def config_of(trainer: pl.Trainer) -> Mapping[str, Any] | None:
    """What a Trainer's checkpoints say was trained; None where it was built without a config."""
    return getattr(trainer.strategy.checkpoint_io, "config", None)
