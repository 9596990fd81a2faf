"""Checkpoints that a kill at any moment leaves whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO

from actlab.files import replacing


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint to a temporary file beside its place, flush it, then rename it.

    Lightning's own writer moves from the system's temporary folder, which is a copy, and so can leave half a
    file, when that is another file system.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Save ``checkpoint`` at the local ``path``; a former file there is replaced in one step."""
        with replacing(Path(path)) as partial, partial.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
