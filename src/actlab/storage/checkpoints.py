"""Checkpoints that a kill at any moment leaves whole, and that know what was trained."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from torch import Tensor

from actlab.errors import ActlabError
from actlab.storage.files import DamagedError, replacing

CONFIG = "actlab"  # the key of a checkpoint under which the record of `actlab.config.records` stands


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint to a temporary file beside its place, flush it, then rename it.

    Lightning's own writer moves from the system's temporary folder, which is a copy, and so can leave half a
    file, when that is another file system.

    Attributes:
        config: what is trained; kept in every checkpoint where it is known.
        remedy: for a checkpoint that is damaged.
    """

    config: Mapping[str, Any] | None = None
    remedy = "give another file"

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Save ``checkpoint`` at the local ``path``; a former file there is replaced in one step."""
        if self.config is not None:
            checkpoint = {**checkpoint, CONFIG: self.config}
        with replacing(Path(path)) as partial, partial.open("wb") as file:
            written: Any = _Written(file)
            try:
                torch.save(checkpoint, written)
            except RuntimeError as error:  # what torch raises then names neither the file nor the disk
                raise written.failure or error from error
            file.flush()
            os.fsync(file.fileno())

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load tensors and plain values; nothing in the file is run, whatever ``weights_only`` says."""
        return read(path, map_location, self.remedy)


def write_weights(
    state: Mapping[str, Tensor], epoch: int, step: int, path: Path, config: Mapping[str, Any] | None
) -> None:
    """Write weights as an ordinary checkpoint, which ``actlab test`` and a Trainer load.

    Args:
        state: of the LightningModule.
        epoch: number of epochs trained.
        step: number of updates.
        path: of the file.
        config: what was trained, as `actlab.config.records` has it; None where it is not known.
    """
    checkpoint = {
        "state_dict": dict(state),
        "epoch": max(0, epoch - 1),  # as Lightning counts: the number of the last one
        "global_step": step,
        "pytorch-lightning_version": version("pytorch-lightning"),
    }
    writer = AtomicCheckpointIO()
    writer.config = config
    writer.save_checkpoint(checkpoint, path)


def epochs_of(checkpoint: Mapping[str, Any]) -> int:
    """How many epochs the weights of a checkpoint of `write_weights` were trained."""
    return int(checkpoint["epoch"]) + (int(checkpoint["global_step"]) > 0)


class _Written:
    """An open file that records why it could not be written."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.failure: OSError | None = None

    def write(self, content: Any) -> int:
        """Write to the file."""
        try:
            return self.file.write(content)
        except OSError as error:
            self.failure = OSError(error.errno, error.strerror, getattr(self.file, "name", None))
            raise

    def flush(self) -> None:
        """Flush the file."""
        self.file.flush()


def check_whole_epochs(checkpoint: Mapping[str, Any]) -> None:
    """Check that training can be resumed from a checkpoint: at the end of an epoch.

    Raises:
        ActlabError: for one that was saved within an epoch.
    """
    batches = checkpoint.get("loops", {}).get("fit_loop", {}).get("epoch_loop.batch_progress", {})
    if (done := batches.get("current", {}).get("processed", 0)) and not batches.get("is_last_batch", True):
        raise ActlabError(
            f"the checkpoint was saved within an epoch, after {done} of its batches; training resumes at the "
            "ends of epochs: give one saved there, as by ModelCheckpoint with save_on_train_epoch_end true"
        )


def read(
    path: str | Path | IO[Any], map_location: Any = "cpu", remedy: str = "give another file"
) -> dict[str, Any]:
    """A local checkpoint; only tensors and plain values are loaded.

    Every part of the file is compared with the checksum that torch wrote beside it; torch itself does not.

    Args:
        path: of the file, or the open file.
        map_location: where tensors go.
        remedy: what to do when it is damaged.

    Raises:
        DamagedError: for a file that is not what was written, is no checkpoint, or holds other objects.
    """
    if isinstance(path, str | Path) and Path(path).exists() and not Path(path).is_file():
        raise DamagedError(f"{str(path)!r} is not a regular file: {remedy}")
    if (part := _damaged_part(path)) is not None:
        raise DamagedError(f"{str(path)!r} is damaged ({part}): {remedy}")
    try:
        found = torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:  # what is no checkpoint may raise anything
        raise DamagedError(
            f"{str(path)!r} cannot be read as a checkpoint of tensors and plain values "
            f"({_first_line(error)[:100]}): {remedy}"
        ) from error
    if not isinstance(found, dict) or "state_dict" not in found:
        raise DamagedError(f"{str(path)!r} is no checkpoint of Lightning, it has no 'state_dict': {remedy}")
    return found


def _damaged_part(path: str | Path | IO[Any]) -> str | None:
    """What in a file of ``torch.save`` does not fit its checksum; None when all does, or it is no such file."""
    try:
        with zipfile.ZipFile(path) as parts:
            return parts.testzip()
    except zipfile.BadZipFile as error:
        return str(error) if _begins_as_zip(path) else None
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, FileNotFoundError):
            raise ActlabError(f"there is no checkpoint {str(path)!r}") from error
        return _first_line(error)
    finally:
        if not isinstance(path, str | Path):
            path.seek(0)


def _begins_as_zip(path: str | Path | IO[Any]) -> bool:
    if not isinstance(path, str | Path):
        path.seek(0)
        return bool(path.read(2) == b"PK")
    with Path(path).open("rb") as file:
        return file.read(2) == b"PK"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def config_of(trainer: pl.Trainer) -> Mapping[str, Any] | None:
    """What a Trainer's checkpoints say was trained; None where it was built without a config."""
    return getattr(trainer.strategy.checkpoint_io, "config", None)
