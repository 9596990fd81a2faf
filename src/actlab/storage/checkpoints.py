"""Atomic writing and safe reading of checkpoints, which also store the training record."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Required

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from torch import Tensor
from typing_extensions import TypedDict

from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.storage.files import DamagedError, replacing
from actlab.storage.json_files import checked

CONFIG = "actlab"  # checkpoint key of the record of `actlab.config.record`
# Key of the numbers of the parameters without optimiser state, for each optimiser
STATELESS = "stateless"
ALONE = "actlab_weights_alone"  # key that marks a file of weights without a checkpoint around them

# The types of Lightning's parts of a checkpoint, and of ours; other keys belong to
# modules and plugins.
_CHECKPOINT = TypedDict(
    "_CHECKPOINT",
    {
        "state_dict": Required[dict[str, Any]],
        "epoch": int,
        "global_step": int,
        "pytorch-lightning_version": str,
        "callbacks": dict[str, Any],
        "loops": dict[str, dict[str, Any]],
        "optimizer_states": list[dict[str, Any]],
        "lr_schedulers": list[dict[str, Any]],
        "actlab": dict[str, Any] | None,
        "stateless": list[list[int]],
        "plateaus": dict[str, list[float]],
        "within_epoch": dict[str, Any],
    },
    total=False,
)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Checkpoint plugin that writes atomically.

    It writes a temporary file on the same file system, flushes and renames it. It stores the
    training record in every checkpoint, and does not decide when a checkpoint is written.

    Lightning's own plugin moves the file from the system's temporary folder. Across file systems
    this move is a copy, which can leave a partial file.
    """

    # The training record stored in every checkpoint.
    config: Mapping[str, Any] | None = None
    remedy = "Use another file."  # about a damaged checkpoint, for the error message

    def __init__(self) -> None:
        super().__init__()
        # By path, of files that were read already; each is loaded once
        self.contents: dict[Any, Any] = {}

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | Path,
        storage_options: Any | None = None,
    ) -> None:
        """Save ``checkpoint`` at the local ``path``; replace an existing file atomically."""
        # Weights alone, which a spawned process returns in a file
        if "state_dict" not in checkpoint:
            checkpoint = {"state_dict": checkpoint, ALONE: True}
        if self.config is not None:
            checkpoint = {**checkpoint, CONFIG: self.config}

        # In memory first: torch's errors of a file do not mention a full disk
        content = io.BytesIO()
        torch.save(checkpoint, content)
        try:
            with replacing(Path(path)) as partial, partial.open("wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any = "cpu",
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Load only tensors and plain values; nothing is unpickled, ``weights_only`` is ignored."""
        content = self.contents.pop(path, None) or read(path, map_location, self.remedy)
        checkpoint = dict(content)
        if checkpoint.get(ALONE):
            return dict(checkpoint["state_dict"])
        return checkpoint


def write_weights(
    state: Mapping[str, Tensor],
    epoch: int,
    step: int,
    path: Path,
    config: Mapping[str, Any] | None,
) -> None:
    """Write the state dict of a LightningModule as a checkpoint.

    ``actlab test`` and a Trainer can load it.

    Args:
        state: the state dict.
        epoch: number of epochs for which the module was trained.
        step: number of its optimizer steps in all.
        path: the file.
        config: the training record of the module.
    """
    checkpoint = {
        "state_dict": dict(state),
        "epoch": max(0, epoch - 1),  # Lightning stores the index of the last epoch
        "global_step": step,
        "pytorch-lightning_version": version("pytorch-lightning"),
    }
    writer = AtomicCheckpointIO()
    writer.config = config
    writer.save_checkpoint(checkpoint, path)


def epochs_of(checkpoint: Mapping[str, Any]) -> int:
    """Return the number of trained epochs of a checkpoint of `write_weights`."""
    return int(checkpoint["epoch"]) + (int(checkpoint["global_step"]) > 0)


def read(
    path: str | Path | IO[Any],
    map_location: Any = "cpu",
    remedy: str = "Use another file.",
    weights_only: bool = True,
) -> dict[str, Any]:
    """Load a local checkpoint of tensors and plain values, from its path or an open file.

    Every part of the file is checked against the checksum stored in the file; torch itself skips
    this check. With ``weights_only=False`` other objects are unpickled, which runs code in the
    file.

    Raises:
        DamagedError: if the file is damaged, is not a Lightning checkpoint or holds other objects.
        ActlabError: if the file does not exist.
    """
    # The file
    if (
        isinstance(path, str | Path)
        and Path(path).exists()
        and not Path(path).is_file()
    ):
        raise DamagedError(f"{str(path)!r} is not a regular file. {remedy}")
    part = damaged_part(path)
    if part is not None:
        raise DamagedError(f"{str(path)!r} is damaged ({part}). {remedy}")

    # Its values
    try:
        checkpoint = torch.load(
            path, map_location=map_location, weights_only=weights_only
        )
    except Exception as error:  # torch.load raises arbitrary errors for other files
        raise DamagedError(
            f"{str(path)!r} cannot be read as a checkpoint of tensors and plain values "
            f"({one_line(error, 100)}). {remedy}"
        ) from error

    # Their keys and types
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise DamagedError(
            f"{str(path)!r} is not a Lightning checkpoint: 'state_dict' is missing. {remedy}"
        )
    try:
        return dict(checked(checkpoint, _CHECKPOINT))
    except ValueError as error:
        raise DamagedError(
            f"{str(path)!r} is not a Lightning checkpoint: {error}. {remedy}"
        ) from error


def damaged_part(path: str | Path | IO[Any]) -> str | None:
    """Return the damaged part of a checkpoint, which is a zip file, or None.

    Raises:
        ActlabError: if the file does not exist.
    """
    try:
        with zipfile.ZipFile(path) as parts:
            return parts.testzip()
    except FileNotFoundError as error:
        raise ActlabError(f"checkpoint {str(path)!r} does not exist") from error
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        return one_line(error)
    finally:
        if not isinstance(path, str | Path):
            path.seek(0)
